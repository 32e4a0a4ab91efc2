"""The engine: many conversations with one model, served together in packed forward passes.

    context (language_model) ──Request──▶ Engine ──▶ Scheduler ──Steps──▶ Runner ──▶ kernels ──▶ KVCache
        tokens to keep,               the event    who goes next,     one forward,  ragged     keys and
        tokens to roll back           loop         no torch           (1, T) tokens only here  values

Methods never see it; they await :class:`bench.models.conversation.ReadingContext`.
"""
