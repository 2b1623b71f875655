/* The least that a broker can do: receives Produce v12, checks the CRC of each batch, writes it, answers.
 *
 *   floor PORT DIRECTORY os|group
 *
 * `group`: one thread syncs; a round is all that was written before its fdatasync begins, and is answered after it.
 * It knows one topic, which has any name and up to PARTITIONS_MAX partitions, one file each, and believes its client:
 * it is there to be measured, beside brokers, by bench/ab.py.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#ifdef __SSE4_2__
#include <nmmintrin.h>
#endif

enum {
    CONNECTIONS_MAX = 1024,
    PARTITIONS_MAX = 64,
    INPUT_MAX = 1 << 20,
    OUTPUT_MAX = 1 << 17,
    EVENTS_MAX = 64,
    API_VERSIONS = 18,
    LEADER_EPOCH_AT = 12,
    CRC_AT = 17,
    CRC_START = 21,
    DELTA_AT = 23,
};

struct connection {
    int socket;
    size_t filled, ready, held; /* bytes of input; of output that may leave; of output behind it, of the open round */
    size_t syncing;             /* of output between the two: of the round that is being synced */
    uint8_t input[INPUT_MAX], output[OUTPUT_MAX];
};

struct partition {
    int file, dirty;
    off_t end;
    int64_t next_offset;
};

static struct connection *connections[CONNECTIONS_MAX];
static struct partition partitions[PARTITIONS_MAX];
static const char *directory;
static int is_synced, is_syncing, synced_event, dirty_files[PARTITIONS_MAX], dirty_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t asked = PTHREAD_COND_INITIALIZER;

static void die(const char *what) {
    fprintf(stderr, "floor: %s: %s\n", what, errno ? strerror(errno) : "failed");
    exit(1);
}

/* CRC-32C, three streams at a time, as an instruction takes three cycles and one can begin in each. */

static uint32_t by_byte[256];

static uint32_t crc_plain(uint32_t crc, const uint8_t *data, size_t size) {
#ifdef __SSE4_2__
    for (; size >= 8; data += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        crc = (uint32_t)_mm_crc32_u64(crc, word);
    }
#endif
    while (size--) crc = by_byte[(crc ^ *data++) & 0xff] ^ crc >> 8;
    return crc;
}

static uint32_t over_zeros[4][256];
static size_t zeros;

/* Tables of what `count` zeros make of a CRC: kept, as batches mostly have the same size. */
static void prepare_zeros(size_t count) {
    if (zeros == count) return;
    zeros = count;
    uint8_t *nothing = calloc(1, count);
    for (int place = 0; place < 4; place++)
        for (int bit = 0; bit < 8; bit++) {
            over_zeros[place][1 << bit] = crc_plain(1u << (8 * place + bit), nothing, count);
            for (int low = 1; low < 1 << bit; low++)
                over_zeros[place][1 << bit | low] = over_zeros[place][1 << bit] ^ over_zeros[place][low];
        }
    free(nothing);
}

static uint32_t shifted(uint32_t crc) {
    return over_zeros[0][crc & 0xff] ^ over_zeros[1][crc >> 8 & 0xff] ^ over_zeros[2][crc >> 16 & 0xff] ^
           over_zeros[3][crc >> 24];
}

static uint32_t crc32c(const uint8_t *data, size_t size) {
    uint32_t first = 0xffffffff;
#ifdef __SSE4_2__
    size_t third = size / 24 * 8;
    if (third >= 64) {
        uint64_t a = first, b = 0, c = 0, word[3];
        prepare_zeros(third);
        for (size_t at = 0; at < third; at += 8) {
            memcpy(&word[0], data + at, 8);
            memcpy(&word[1], data + third + at, 8);
            memcpy(&word[2], data + 2 * third + at, 8);
            a = _mm_crc32_u64(a, word[0]);
            b = _mm_crc32_u64(b, word[1]);
            c = _mm_crc32_u64(c, word[2]);
        }
        first = shifted(shifted((uint32_t)a) ^ (uint32_t)b) ^ (uint32_t)c;
        data += 3 * third;
        size -= 3 * third;
    }
#endif
    return ~crc_plain(first, data, size);
}

static void prepare_crc(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
        by_byte[byte] = crc;
    }
}

/* Bytes in and out */

static uint32_t take32(const uint8_t **at) {
    uint32_t value;
    memcpy(&value, *at, 4);
    *at += 4;
    return ntohl(value);
}

static size_t take_varint(const uint8_t **at) {
    size_t value = 0;
    for (int shift = 0;; shift += 7) {
        uint8_t byte = *(*at)++;
        value |= (size_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return value;
    }
}

static uint8_t *put32(uint8_t *to, uint32_t value) {
    value = htonl(value);
    memcpy(to, &value, 4);
    return to + 4;
}

static uint8_t *put64(uint8_t *to, uint64_t value) {
    return put32(put32(to, (uint32_t)(value >> 32)), (uint32_t)value);
}

static int64_t append(uint32_t index, uint8_t *batch, size_t size) {
    if (index >= PARTITIONS_MAX) die("too many partitions");
    struct partition *into = &partitions[index];
    if (!into->file) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%u.log", directory, index);
        into->file = open(path, O_CREAT | O_RDWR, 0600);
        if (into->file < 0) die(path);
    }
    const uint8_t *at = batch + CRC_AT, *delta = batch + DELTA_AT;
    if (crc32c(batch + CRC_START, size - CRC_START) != take32(&at)) die("a batch is broken");
    int64_t offset = into->next_offset;
    put64(batch, (uint64_t)offset);
    put32(batch + LEADER_EPOCH_AT, 0);
    if (pwrite(into->file, batch, size, into->end) != (ssize_t)size) die("write");
    into->end += (off_t)size;
    into->next_offset += take32(&delta) + 1;
    into->dirty = 1;
    return offset;
}

/* Appends, and writes the answer; returns its end. */
static uint8_t *produce(const uint8_t *at, uint8_t *to) {
    at += 4;
    uint8_t *size_at = to;
    to += 4;
    memcpy(to, at, 4);
    at += 4;
    at += 2 + ((size_t)at[0] << 8 | at[1]) + 1; /* client id, no tagged fields */
    at += 1 + 2 + 4 + 1;                        /* no transaction, acks, timeout, one topic */
    to += 4;
    *to++ = 0;
    *to++ = 2;
    size_t name = *at;
    memcpy(to, at, name);
    at += name;
    to += name;
    size_t count = take_varint(&at) - 1;
    if (count > PARTITIONS_MAX) die("too many partitions");
    *to++ = (uint8_t)(count + 1);
    for (size_t n = 0; n < count; n++) {
        uint32_t index = take32(&at);
        size_t size = take_varint(&at) - 1;
        int64_t offset = append(index, (uint8_t *)at, size);
        at += size + 1;
        to = put32(to, index);
        *to++ = 0; /* no error */
        *to++ = 0;
        to = put64(put64(put64(to, (uint64_t)offset), UINT64_MAX), 0);
        *to++ = 1; /* no errors of records, no message, no tagged fields */
        *to++ = 0;
        *to++ = 0;
    }
    *to++ = 0;
    to = put32(to, 0);
    *to++ = 0;
    put32(size_at, (uint32_t)(to - size_at - 4));
    return to;
}

static uint8_t *api_versions(const uint8_t *at, uint8_t *to) {
    to = put32(to, 10);
    memcpy(to, at + 4, 4);
    memset(to + 4, 0, 6); /* no error, no versions: whoever asks wants to know whether this is up */
    return to + 10;
}

static void send_ready(struct connection *to) {
    size_t sent = 0;
    while (sent < to->ready) {
        ssize_t done = send(to->socket, to->output + sent, to->ready - sent, MSG_NOSIGNAL);
        if (done < 0) break; /* the client is gone */
        sent += (size_t)done;
    }
    memmove(to->output, to->output + to->ready, to->syncing + to->held);
    to->ready = 0;
}

/* The sync thread, and the rounds */

static void *sync_rounds(void *_) {
    (void)_;
    for (uint64_t one = 1;;) {
        pthread_mutex_lock(&lock);
        while (!dirty_count) pthread_cond_wait(&asked, &lock);
        pthread_mutex_unlock(&lock);
        for (int n = 0; n < dirty_count; n++)
            if (fdatasync(dirty_files[n])) die("sync");
        dirty_count = 0;
        if (write(synced_event, &one, sizeof one) != sizeof one) die("eventfd");
    }
    return NULL;
}

static void begin_round(void) {
    int count = 0;
    for (int n = 0; n < PARTITIONS_MAX; n++)
        if (partitions[n].dirty) {
            dirty_files[count++] = partitions[n].file;
            partitions[n].dirty = 0;
        }
    if (!count) return;
    for (int n = 0; n < CONNECTIONS_MAX; n++)
        if (connections[n]) {
            connections[n]->syncing = connections[n]->held;
            connections[n]->held = 0;
        }
    is_syncing = 1;
    pthread_mutex_lock(&lock);
    dirty_count = count;
    pthread_cond_signal(&asked);
    pthread_mutex_unlock(&lock);
}

static void end_round(void) {
    uint64_t count;
    if (read(synced_event, &count, sizeof count) != sizeof count) die("eventfd");
    is_syncing = 0;
    for (int n = 0; n < CONNECTIONS_MAX; n++)
        if (connections[n] && connections[n]->syncing) {
            connections[n]->ready += connections[n]->syncing;
            connections[n]->syncing = 0;
            send_ready(connections[n]);
        }
}

/* Connections */

static void drop(int number) {
    close(connections[number]->socket);
    free(connections[number]);
    connections[number] = NULL;
}

static void take(int number) {
    struct connection *from = connections[number];
    ssize_t got = recv(from->socket, from->input + from->filled, INPUT_MAX - from->filled, 0);
    if (got <= 0) {
        drop(number);
        return;
    }
    from->filled += (size_t)got;
    size_t position = 0;
    while (from->filled - position >= 4) {
        const uint8_t *at = from->input + position;
        size_t size = take32(&at);
        if (size > INPUT_MAX - 4) die("a request is too long");
        if (from->filled - position - 4 < size) break;
        uint8_t *begin = from->output + from->ready + from->syncing + from->held;
        if (begin > from->output + OUTPUT_MAX - 4096) die("too many requests under way");
        int is_produce = at[1] != API_VERSIONS;
        uint8_t *end = is_produce ? produce(at, begin) : api_versions(at, begin);
        *(is_produce && is_synced ? &from->held : &from->ready) += (size_t)(end - begin);
        position += 4 + size;
    }
    memmove(from->input, from->input + position, from->filled -= position);
    if (from->ready) send_ready(from);
}

static void welcome(int listener, int poll) {
    int accepted = accept4(listener, NULL, NULL, SOCK_CLOEXEC), one = 1, number = 0;
    if (accepted < 0) die("accept");
    setsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    while (number < CONNECTIONS_MAX && connections[number]) number++;
    if (number == CONNECTIONS_MAX) die("too many connections");
    connections[number] = calloc(1, sizeof **connections);
    connections[number]->socket = accepted;
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)number};
    if (epoll_ctl(poll, EPOLL_CTL_ADD, accepted, &event)) die("epoll");
}

static int listen_at(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 128)) die("listen");
    return listener;
}

int main(int count, char **words) {
    if (count != 4) die("PORT DIRECTORY os|group");
    directory = words[2];
    is_synced = !strcmp(words[3], "group");
    prepare_crc();
    enum { LISTENER = CONNECTIONS_MAX, SYNCED };
    int listener = listen_at(atoi(words[1])), poll = epoll_create1(EPOLL_CLOEXEC);
    synced_event = eventfd(0, EFD_CLOEXEC);
    struct epoll_event events[EVENTS_MAX] = {{.events = EPOLLIN, .data.u32 = LISTENER}};
    if (epoll_ctl(poll, EPOLL_CTL_ADD, listener, &events[0])) die("epoll");
    events[0].data.u32 = SYNCED;
    if (epoll_ctl(poll, EPOLL_CTL_ADD, synced_event, &events[0])) die("epoll");
    pthread_t thread;
    if (is_synced && pthread_create(&thread, NULL, sync_rounds, NULL)) die("thread");
    for (;;) {
        int ready = epoll_wait(poll, events, EVENTS_MAX, -1);
        for (int n = 0; n < ready; n++) {
            uint32_t which = events[n].data.u32;
            if (which == LISTENER)
                welcome(listener, poll);
            else if (which == SYNCED)
                end_round();
            else
                take((int)which);
        }
        if (is_synced && !is_syncing) begin_round();
    }
}
