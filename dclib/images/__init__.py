"""Where images come from before they are tensors: data roots, files, folders, objects, and what is done to their pixels."""
