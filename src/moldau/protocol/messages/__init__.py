"""One file per API key: the request and the response as tables. `moldau.protocol.apis` finds them by key."""
