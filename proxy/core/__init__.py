"""The product: pure functions over frozen values. No I/O, no clock, no chance, no logging."""
