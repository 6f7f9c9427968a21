/* The bound of pgbench.py: PostgreSQL's protocol in a loop in C, one prepared SELECT by key on N connections.

   pgbench_loop KEYS SECONDS DESCRIPTOR...: descriptors of sessions that have the prepared statement `s`; keys are drawn
   evenly from 1 to KEYS. Each answer is read with one recv and not looked into beyond its last message. Prints
   transactions, seconds and CPU seconds. */

#define _DEFAULT_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

enum { ROOM = 1 << 14, EVENTS = 1024 };

static double at(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

/* Appends a message; returns the end. */
static char *message(char *end, char type, const char *body, size_t length)
{
    uint32_t size = htonl((uint32_t)length + 4);
    *end = type;
    memcpy(end + 1, &size, 4);
    memcpy(end + 5, body, length);
    return end + 5 + length;
}

static void ask(int fd, int64_t keys)
{
    static uint64_t state = 88172645463325252u;
    static char packet[ROOM];
    static size_t length, place;
    uint64_t key;
    if (!length) {
        char bind[] = "\0s\0\0\1\0\1\0\1\0\0\0\10xxxxxxxx\0\1\0\1", *end;
        end = message(packet, 'B', bind, sizeof bind - 1);
        place = end - packet - 12;
        end = message(end, 'E', "\0\0\0\0\0", 5);
        length = message(end, 'S', "", 0) - packet;
    }
    state ^= state << 13, state ^= state >> 7, state ^= state << 17; /* xorshift64 */
    key = htobe64(1 + state % keys);
    memcpy(packet + place, &key, 8);
    if (send(fd, packet, length, 0) != (ssize_t)length)
        fail("send");
}

int main(int argc, char **argv)
{
    struct epoll_event events[EVENTS], event = {.events = EPOLLIN};
    char answer[ROOM];
    long done = 0;
    int epoll = epoll_create1(0);
    if (argc < 4)
        return 2;
    int64_t keys = atoll(argv[1]);
    for (int i = 3; i < argc; i++) {
        event.data.fd = atoi(argv[i]);
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, event.data.fd, &event))
            fail(argv[i]);
    }
    double seconds = atof(argv[2]), cpu = at(CLOCK_PROCESS_CPUTIME_ID), began = at(CLOCK_MONOTONIC), now = began;
    for (int i = 3; i < argc; i++)
        ask(atoi(argv[i]), keys);
    while (now < began + seconds) {
        int ready = epoll_wait(epoll, events, EVENTS, -1);
        for (int i = 0; i < ready; i++) {
            ssize_t length = recv(events[i].data.fd, answer, sizeof answer, 0);
            if (length <= 0 || answer[0] == 'E') {
                fwrite(answer, 1, length > 0 ? (size_t)length : 0, stderr);
                fail(length > 0 ? " (the server refuses)" : "the server has ended the connection");
            }
            if (length >= 6 && answer[length - 6] == 'Z') {
                done++;
                ask(events[i].data.fd, keys);
            }
        }
        now = at(CLOCK_MONOTONIC);
    }
    printf("%ld %.9f %.9f\n", done, now - began, at(CLOCK_PROCESS_CPUTIME_ID) - cpu);
    return 0;
}
