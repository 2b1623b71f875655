/* Sends prepared requests as fast as a broker answers them, or at a rate, and costs next to nothing itself.
 *
 *   raw_driver PORT CONNECTIONS IN_FLIGHT REQUESTS RATE ERROR_AT RISES_AT STEP TIMES FRAME...
 *
 * A FRAME is a file with one whole request, its size first; its correlation id is written over. Connection n sends frame
 * n modulo their number. RATE 0: each connection has IN_FLIGHT requests under way, always. Another RATE is in requests
 * a second over all connections: each is sent at its time, whatever is still under way, and its latency counts from
 * then. ERROR_AT: where in an answer (behind its size) an error code is, which has to be 0. RISES_AT: where in a frame a
 * number of eight bytes is, such as the offset of a fetch, that is 0 at first, grows by STEP with each request of a
 * connection, and begins again after TIMES requests; 0: there is none.
 * Prints: seconds, the 50th and the 99th percentile of the latencies in microseconds, and the bytes of all answers.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CONNECTIONS_MAX = 1024, ANSWER_MAX = 1 << 21, UNDER_WAY_MAX = 1 << 16, CORRELATION_ID = 8 };

struct connection {
    int socket;
    uint8_t *frame;
    size_t size;
    uint32_t sent, answered;
    double *began; /* by correlation id, modulo UNDER_WAY_MAX */
    uint8_t buffer[ANSWER_MAX];
    size_t filled;
};

struct rising {
    size_t at;
    uint64_t step, times;
};

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

static void die(const char *what) {
    fprintf(stderr, "raw_driver: %s: %s\n", what, errno ? strerror(errno) : "failed");
    exit(1);
}

static void send_one(struct connection *each, const struct rising *number, double at) {
    if (each->sent - each->answered >= UNDER_WAY_MAX) die("too many under way");
    uint32_t id = htonl(each->sent);
    memcpy(each->frame + CORRELATION_ID, &id, sizeof id);
    if (number->at) {
        uint64_t value = htobe64(each->sent % number->times * number->step);
        memcpy(each->frame + number->at, &value, sizeof value);
    }
    each->began[each->sent++ % UNDER_WAY_MAX] = at;
    for (size_t done = 0; done < each->size;) {
        ssize_t taken = send(each->socket, each->frame + done, each->size - done, 0);
        if (taken < 0) die("send");
        done += (size_t)taken;
    }
}

/* Takes what has come; returns how many answers were complete. */
static unsigned take(struct connection *each, size_t error_at, double *latencies, uint64_t *bytes) {
    errno = 0;
    ssize_t got = recv(each->socket, each->buffer + each->filled, ANSWER_MAX - each->filled, 0);
    if (got <= 0) die("the broker has closed a connection");
    each->filled += (size_t)got;
    *bytes += (uint64_t)got;
    double at = now();
    size_t position = 0;
    unsigned answers = 0;
    while (each->filled - position >= 4) {
        uint32_t size, id;
        memcpy(&size, each->buffer + position, 4);
        size = ntohl(size);
        if (size > ANSWER_MAX - 4) die("an answer is too long");
        if (each->filled - position - 4 < size) break;
        const uint8_t *answer = each->buffer + position + 4;
        memcpy(&id, answer, 4);
        if (ntohl(id) != each->answered) die("answers are out of order");
        if (error_at + 2 > size || answer[error_at] || answer[error_at + 1]) die("an answer has an error code");
        latencies[answers++] = at - each->began[each->answered++ % UNDER_WAY_MAX];
        position += 4 + size;
    }
    memmove(each->buffer, each->buffer + position, each->filled -= position);
    return answers;
}

static void load(struct connection *each, const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) die(path);
    fseek(file, 0, SEEK_END);
    each->size = (size_t)ftell(file);
    rewind(file);
    uint8_t *frame = malloc(each->size);
    if (!frame || fread(frame, 1, each->size, file) != each->size) die(path);
    fclose(file);
    each->frame = frame;
}

static int open_socket(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int opened = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (opened < 0 || connect(opened, (struct sockaddr *)&address, sizeof address)) die("connect");
    setsockopt(opened, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return opened;
}

static int ascending(const void *one, const void *other) {
    double difference = *(const double *)one - *(const double *)other;
    return (difference > 0) - (difference < 0);
}

int main(int count, char **words) {
    if (count < 11) die("PORT CONNECTIONS IN_FLIGHT REQUESTS RATE ERROR_AT RISES_AT STEP TIMES FRAME...");
    int port = atoi(words[1]), connections = atoi(words[2]), frames = count - 10;
    unsigned in_flight = (unsigned)atoi(words[3]);
    unsigned requests = (unsigned)atoi(words[4]), sent = 0, answered = 0;
    double rate = atof(words[5]);
    size_t error_at = (size_t)atoi(words[6]);
    struct rising number = {(size_t)atoi(words[7]), (uint64_t)atoi(words[8]), (uint64_t)atoi(words[9])};
    uint64_t bytes = 0;
    if (connections < 1 || connections > CONNECTIONS_MAX) die("CONNECTIONS");
    struct connection *all = calloc((size_t)connections, sizeof *all);
    struct pollfd *polled = calloc((size_t)connections, sizeof *polled);
    double *latencies = calloc(requests + ANSWER_MAX, sizeof *latencies);
    for (int n = 0; n < connections; n++) {
        load(&all[n], words[10 + n % frames]);
        all[n].began = calloc(UNDER_WAY_MAX, sizeof(double));
        all[n].socket = open_socket(port);
        polled[n] = (struct pollfd){all[n].socket, POLLIN, 0};
    }
    double begun = now();
    if (rate == 0)
        for (unsigned turn = 0; turn < in_flight; turn++)
            for (int n = 0; n < connections && sent < requests; n++, sent++) send_one(&all[n], &number, now());
    while (answered < requests) {
        struct timespec wait = {60, 0};
        if (rate > 0) {
            double at = now();
            for (; sent < requests && begun + sent / rate <= at; sent++)
                send_one(&all[sent % (unsigned)connections], &number, begun + sent / rate);
            double left = sent < requests ? begun + sent / rate - now() : 60;
            if (left < 0) left = 0;
            wait = (struct timespec){(time_t)left, (long)((left - (time_t)left) * 1e9)};
        }
        int ready = ppoll(polled, (nfds_t)connections, &wait, NULL);
        if (ready < 0) die("poll");
        if (ready == 0 && (rate == 0 || sent == requests)) die("no answer for a minute");
        for (int n = 0; n < connections && ready > 0; n++) {
            if (!polled[n].revents) continue;
            ready--;
            unsigned answers = take(&all[n], error_at, latencies + answered, &bytes);
            answered += answers;
            if (rate == 0)
                for (; answers > 0 && sent < requests; answers--, sent++) send_one(&all[n], &number, now());
        }
    }
    double seconds = now() - begun;
    qsort(latencies, answered, sizeof *latencies, ascending);
    double p50 = latencies[answered / 2], p99 = latencies[answered * 99 / 100];
    printf("%.6f %.1f %.1f %llu\n", seconds, p50 * 1e6, p99 * 1e6, (unsigned long long)bytes);
    return 0;
}
