"""The main job: a small transformer that learns to write like Python's manual."""
