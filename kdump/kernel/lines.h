/* Finds the bytes to escape among 16 bytes: '"', '\' and all but printable ASCII. Bit i of the result is byte i. */
#ifndef KDUMP_LINES_H
#define KDUMP_LINES_H
#include <stdint.h>
#include <string.h>

static inline uint64_t kd_word(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return v; }

static inline int kd_digits(uint64_t number) {
    static const uint64_t powers[] = {0, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000, 1000000000,
        10000000000u, 100000000000u, 1000000000000u, 10000000000000u, 100000000000000u, 1000000000000000u,
        10000000000000000u, 100000000000000000u, 1000000000000000000u, 10000000000000000000u};
    int about = (64 - __builtin_clzll(number | 1)) * 1233 >> 12; /* the logarithm, or one less than the digits */
    return about + (number >= powers[about]);
}

static inline int kd_lowest(uint32_t mask) { return __builtin_ctz(mask); }

#if defined(__SSE2__)
#include <emmintrin.h>
static inline uint32_t kd_odd(const uint8_t *p) {
    __m128i bytes = _mm_loadu_si128((const __m128i *)p);
    /* The comparison is signed: bytes of 0x80 and above are below the space, too. */
    __m128i control = _mm_or_si128(_mm_cmplt_epi8(bytes, _mm_set1_epi8(0x20)),
                                   _mm_cmpeq_epi8(bytes, _mm_set1_epi8(0x7f)));
    __m128i quotes = _mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8('"')),
                                  _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\')));
    return (uint32_t)_mm_movemask_epi8(_mm_or_si128(control, quotes));
}
#else
#define KD_EVERY(byte) (0x0101010101010101u * (uint64_t)(byte))
/* Sets the highest bit of each byte that is not zero. The bytes have seven bits. */
static inline uint64_t kd_not_zero(uint64_t word) { return word + KD_EVERY(0x7f); }
static inline uint32_t kd_odd(const uint8_t *p) {
    uint32_t mask = 0;
    for (int i = 0; i < 16; i += 8) {
        uint64_t word = 0, low, good;
        for (int k = 0; k < 8; k++) word |= (uint64_t)p[i + k] << 8 * k;
        low = word & KD_EVERY(0x7f);
        good = ~word & (low + KD_EVERY(0x60)) & kd_not_zero(low ^ KD_EVERY(0x7f)) & kd_not_zero(low ^ KD_EVERY('"')) &
               kd_not_zero(low ^ KD_EVERY('\\'));
        mask |= (uint32_t)((~good >> 7 & KD_EVERY(1)) * 0x0102040810204080u >> 56) << i;
    }
    return mask;
}
#endif
#endif
