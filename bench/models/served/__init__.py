"""Models behind a server of others: vLLM, llama.cpp, or any that speaks like one of them.

The server computes; prompts, tokens and costs stay ours. An :mod:`address <bench.models.served.address>`
names server and model, a :mod:`dialect <bench.models.served.dialects>` says how one kind of server is asked
and read, the :mod:`client <bench.models.served.client>` carries requests and decides what a fault means,
and :class:`ServedLanguageModel <bench.models.served.language_model.ServedLanguageModel>` is what a method
sees.
"""
