"""Providers and engines that enforce their contracts, and clients that test what stands between."""
