/* The peer of sqlite_loop.py: one prepared SELECT by key in a loop, all columns read.

   sqlite_loop FILE SQL KEYS SECONDS: KEYS is a file of native int64, used in order and again from its start. Prints executions,
   seconds and CPU seconds. */

#include <sqlite3.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double at(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    static int64_t keys[1 << 20];
    sqlite3 *database;
    sqlite3_stmt *statement;
    int64_t sum = 0;
    long done = 0;
    FILE *file = argc == 5 ? fopen(argv[3], "rb") : NULL;
    size_t count = file ? fread(keys, sizeof *keys, sizeof keys / sizeof *keys, file) : 0;
    if (!count || sqlite3_open_v2(argv[1], &database, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK
        || sqlite3_prepare_v2(database, argv[2], -1, &statement, NULL) != SQLITE_OK)
        return 1;
    double seconds = atof(argv[4]), cpu = at(CLOCK_PROCESS_CPUTIME_ID), began = at(CLOCK_MONOTONIC), now = began;
    while (now < began + seconds) {
        for (int i = 0; i < 1000; i++, done++) {
            int status;
            sqlite3_bind_int64(statement, 1, keys[done % count]);
            while ((status = sqlite3_step(statement)) == SQLITE_ROW)
                for (int column = 0; column < sqlite3_column_count(statement); column++)
                    if (sqlite3_column_type(statement, column) == SQLITE_INTEGER)
                        sum += sqlite3_column_int64(statement, column);
                    else
                        sum += *sqlite3_column_text(statement, column);
            if (status != SQLITE_DONE)
                return 1;
            sqlite3_reset(statement);
        }
        now = at(CLOCK_MONOTONIC);
    }
    printf("%ld %.9f %.9f %lld\n", done, now - began, at(CLOCK_PROCESS_CPUTIME_ID) - cpu, (long long)sum);
    return 0;
}
