"""Box plots of arrays that are larger than memory."""
