"""Views rebuilt from offset zero beside the live ones: loaded in a thread, brought along by batches, then swapped."""
