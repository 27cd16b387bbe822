"""`lethe report`: what each policy came to over many conversations, and how it compares."""
