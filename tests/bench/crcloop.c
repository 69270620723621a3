/*
 * The floor: read(2) into a 512 KiB buffer and CRC-32C over every byte, nothing else.
 *
 *   crcloop FILE...     prints one JSON line: {"bytes": N, "crc": C}, the CRC of all files as one stream
 *
 * The CRC runs as three independent instruction streams over neighbouring stripes; their states are joined by
 * "append L zero bytes" tables, which the same instruction fills at start.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__SSE4_2__)
#include <nmmintrin.h>
static inline uint64_t step8(uint64_t crc, uint64_t word) { return _mm_crc32_u64(crc, word); }
static inline uint64_t step1(uint64_t crc, uint8_t byte) { return _mm_crc32_u8((uint32_t)crc, byte); }
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
static inline uint64_t step8(uint64_t crc, uint64_t word) { return __crc32cd((uint32_t)crc, word); }
static inline uint64_t step1(uint64_t crc, uint8_t byte) { return __crc32cb((uint32_t)crc, byte); }
#else
#error "no CRC-32C instruction: the floor cannot be measured on this machine"
#endif

enum { BUFFER = 512 << 10, LONG = 8192, SHORT = 256 };

typedef uint32_t zeros_table[4][256];
static zeros_table long_zeros, short_zeros;

static inline uint64_t load8(const uint8_t *p)
{
    uint64_t word;
    memcpy(&word, p, 8);
    return word;
}

/* The state after `length` zero bytes is linear in the state before: 32 basis vectors give all of it. */
static void fill_zeros(zeros_table table, size_t length)
{
    uint32_t basis[32];
    for (int bit = 0; bit < 32; bit++) {
        uint64_t crc = UINT64_C(1) << bit;
        for (size_t i = 0; i < length / 8; i++)
            crc = step8(crc, 0);
        basis[bit] = (uint32_t)crc;
    }
    for (int byte = 0; byte < 4; byte++)
        for (int value = 0; value < 256; value++) {
            uint32_t sum = 0;
            for (int bit = 0; bit < 8; bit++)
                if (value >> bit & 1)
                    sum ^= basis[8 * byte + bit];
            table[byte][value] = sum;
        }
}

static inline uint64_t append_zeros(zeros_table table, uint64_t crc)
{
    return table[0][crc & 255] ^ table[1][crc >> 8 & 255] ^ table[2][crc >> 16 & 255] ^ table[3][crc >> 24 & 255];
}

static inline uint64_t three_stripes(uint64_t crc, const uint8_t *p, size_t stripe, zeros_table table)
{
    uint64_t second = 0, third = 0;
    for (size_t i = 0; i < stripe; i += 8) {
        crc = step8(crc, load8(p + i));
        second = step8(second, load8(p + stripe + i));
        third = step8(third, load8(p + 2 * stripe + i));
    }
    return append_zeros(table, append_zeros(table, crc) ^ second) ^ third;
}

static uint64_t update(uint64_t crc, const uint8_t *p, size_t length)
{
    for (; length >= 3 * LONG; p += 3 * LONG, length -= 3 * LONG)
        crc = three_stripes(crc, p, LONG, long_zeros);
    for (; length >= 3 * SHORT; p += 3 * SHORT, length -= 3 * SHORT)
        crc = three_stripes(crc, p, SHORT, short_zeros);
    for (; length >= 8; p += 8, length -= 8)
        crc = step8(crc, load8(p));
    for (; length; p++, length--)
        crc = step1(crc, *p);
    return crc;
}

static int fail(const char *what)
{
    fprintf(stderr, "crcloop: %s: %s\n", what, strerror(errno));
    return 1;
}

int main(int argc, char **argv)
{
    uint8_t *buffer = aligned_alloc(4096, BUFFER);
    uint64_t crc = 0xFFFFFFFF, total = 0;

    if (!buffer)
        return fail("buffer");
    fill_zeros(long_zeros, LONG);
    fill_zeros(short_zeros, SHORT);
    for (int i = 1; i < argc; i++) {
        int file = open(argv[i], O_RDONLY);
        if (file < 0)
            return fail(argv[i]);
        ssize_t got;
        while ((got = read(file, buffer, BUFFER)) != 0) {
            if (got < 0)
                return fail(argv[i]);
            crc = update(crc, buffer, (size_t)got);
            total += (uint64_t)got;
        }
        close(file);
    }
    printf("{\"bytes\": %" PRIu64 ", \"crc\": %" PRIu32 "}\n", total, (uint32_t)crc ^ 0xFFFFFFFF);
    return 0;
}
