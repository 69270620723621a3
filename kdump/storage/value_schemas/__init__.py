"""Where schemas of keys and values are read: files of a folder, and the segments of a schema registry's topic."""
