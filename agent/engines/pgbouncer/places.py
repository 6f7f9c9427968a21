"""Where a host has PgBouncer; Debian: not on the search path of ordinary users."""

PLACES = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"
