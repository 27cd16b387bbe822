"""The laws of the product, held over generated histories."""
