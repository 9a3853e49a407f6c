"""Files of data sets: fetching, checking, unpacking and caching them."""
