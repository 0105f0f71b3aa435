"""What the paper compares condensation with and applies it to, one file for each method; `epochs` is shared by several."""
