"""Models on samples partitioned in space: tensors with a global layout, and a rule for each operation."""
