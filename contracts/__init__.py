"""What the packages hand to each other: frozen values, of the standard library and NumPy alone."""
