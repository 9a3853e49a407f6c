"""Knowledge graphs: the table of known ones, parsing, caching, answers."""
