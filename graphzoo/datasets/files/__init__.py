"""Files behind data sets: fetched, checked, unpacked, cached."""
