"""A request as it arrived, one module a wire format."""
