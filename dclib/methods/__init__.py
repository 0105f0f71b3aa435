"""What the paper compares with and applies condensation to, one file for each method: coresets, distillation, and others."""
