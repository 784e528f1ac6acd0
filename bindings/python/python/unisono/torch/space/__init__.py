"""Models whose samples are divided in space: tensors that know their whole, and a rule for each operation."""
