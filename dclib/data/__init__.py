"""Data sets as whole uint8 tensors: by name, from files and folders, from other libraries' objects; drawing by class."""
