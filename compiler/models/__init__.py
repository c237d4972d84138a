"""The stages of each model family and drafter, one file each."""
