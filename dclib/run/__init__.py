"""From a declared run to its record: sets made, chosen and tested; runs spread over processes and machines; records verified."""
