"""One file per API key: authorise, translate, call, answer. `ls` is the table of what is served."""
