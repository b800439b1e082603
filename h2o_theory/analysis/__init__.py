"""What attention concentrates on: heavy hitters, power laws, co-occurrence, sparsity."""
