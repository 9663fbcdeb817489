"""What happens to a chunk of any array of the array API: the reference of every other kernel."""
