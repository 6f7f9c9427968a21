"""The folders in which a host may have PgBouncer; /usr/sbin is not on the search path of ordinary users."""

PLACES = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"
