"""Where rows come from: files, rows of the program, and (in ``spark``) streaming DataFrames."""
