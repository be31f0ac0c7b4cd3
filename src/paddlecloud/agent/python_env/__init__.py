"""Python environments for `--requirements`, installed once and cached by content."""
