"""The engine: many conversations with one model, served together in packed forward passes.

    context (language_model) ──Request──▶ Engine ──rows──▶ one forward ──▶ packed_attention ──▶ kv_cache
        tokens to keep,               every batch:      (1, T) tokens   ragged only here     keys and values
        tokens to roll back           who goes next                                         of all contexts

Methods never see it; they await :class:`bench.models.api.ReadingContext`.
"""
