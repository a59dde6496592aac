"""Several processes that train one model: who they are, how they agree, how they are started."""
