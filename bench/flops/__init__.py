"""The one FLOP counter: a model's sizes, closed forms of what a forward pass costs, and who pays."""
