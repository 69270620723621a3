/* Finds bytes among 16: those to escape ('"', '\' and all but printable ASCII), and those for which a field of CSV is
   quoted ('"', ',', CR and LF). Bit i of the result is byte i. */
#ifndef KDUMP_LINES_H
#define KDUMP_LINES_H
#include <stdint.h>
#include <string.h>

static const uint8_t KD_PAIRS[] =
    "00010203040506070809101112131415161718192021222324252627282930313233343536373839404142434445464748495051525354555657"
    "585960616263646566676869707172737475767778798081828384858687888990919293949596979899";
static const uint8_t KD_HEX[] = "0123456789abcdef";

/* The times that are written are between these seconds: from 0001-01-01 on, before 10000-01-01. */
#define KD_FIRST_SECOND ((int64_t)-62135596800LL)
#define KD_STOP_SECOND ((int64_t)253402300800LL)

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
static inline uint32_t kd_quoted(const uint8_t *p) {
    __m128i bytes = _mm_loadu_si128((const __m128i *)p);
    __m128i ends = _mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8('\r')), _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\n')));
    __m128i quotes = _mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8('"')), _mm_cmpeq_epi8(bytes, _mm_set1_epi8(',')));
    return (uint32_t)_mm_movemask_epi8(_mm_or_si128(ends, quotes));
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
static inline uint32_t kd_quoted(const uint8_t *p) {
    uint32_t mask = 0;
    for (int i = 0; i < 16; i++) mask |= (uint32_t)(p[i] == '"' || p[i] == ',' || p[i] == '\r' || p[i] == '\n') << i;
    return mask;
}
#endif

/* Copy text with a backslash before '"' and '\'. They may write 64 bytes more than they copy, and return where they
   ended: at `stop`, or at bytes with others than printable ASCII among them.
   kd_shuffle: 16 bytes at once, by tables of where each byte goes; it also ends in the 16 bytes before `limit`.
   kd_compress: 64 bytes at once, each with a backslash before it, of which the needless ones are left out. */
#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
static uint8_t kd_places[256][16]; /* of eight bytes; 0x80 for a backslash */
static uint8_t kd_counts[256];
/* 2: the processor has what both take; 1: what kd_shuffle takes. */
static inline int kd_begin_escapes(void) {
    for (int mask = 0; mask < 256; mask++) {
        int at = 0;
        memset(kd_places[mask], 0x80, 16);
        for (int i = 0; i < 8; i++) {
            at += mask >> i & 1;
            kd_places[mask][at++] = (uint8_t)i;
        }
        kd_counts[mask] = (uint8_t)(at - 8);
    }
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("bmi2"))
        return 2;
    return __builtin_cpu_supports("ssse3") != 0;
}
__attribute__((target("ssse3"))) static inline __m128i kd_shuffled(__m128i bytes, uint32_t mask) {
    __m128i places = _mm_loadu_si128((const __m128i *)kd_places[mask]);
    __m128i slashes = _mm_and_si128(_mm_cmplt_epi8(places, _mm_setzero_si128()), _mm_set1_epi8('\\'));
    return _mm_or_si128(_mm_shuffle_epi8(bytes, places), slashes);
}
__attribute__((target("ssse3"), unused)) static const uint8_t *kd_shuffle(const uint8_t *p, const uint8_t *stop,
                                                                          const uint8_t *limit, uint8_t **to) {
    uint8_t *q = *to;
    while (p < stop && limit - p >= 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)p);
        __m128i control = _mm_or_si128(_mm_cmplt_epi8(bytes, _mm_set1_epi8(0x20)),
                                       _mm_cmpeq_epi8(bytes, _mm_set1_epi8(0x7f)));
        __m128i quotes = _mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8('"')),
                                      _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\')));
        long n = stop - p < 16 ? stop - p : 16;
        uint32_t used = 0xffff >> (16 - n), marks = (uint32_t)_mm_movemask_epi8(quotes) & used;
        if ((uint32_t)_mm_movemask_epi8(control) & used) break;
        if (marks) {
            uint32_t low = marks & 255, high = marks >> 8;
            _mm_storeu_si128((__m128i *)q, kd_shuffled(bytes, low));
            _mm_storeu_si128((__m128i *)(q + 8 + kd_counts[low]), kd_shuffled(_mm_srli_si128(bytes, 8), high));
            q += kd_counts[low] + kd_counts[high];
        } else {
            _mm_storeu_si128((__m128i *)q, bytes);
        }
        q += n;
        p += n;
    }
    *to = q;
    return p;
}
#define KD_WIDE __attribute__((target("avx512f,avx512bw,avx512vbmi2,bmi2,popcnt"), unused))
KD_WIDE static inline uint8_t *kd_compressed(uint8_t *q, __m256i bytes, uint32_t marks, long n) {
    __m512i pairs = _mm512_or_si512(_mm512_slli_epi16(_mm512_cvtepu8_epi16(bytes), 8), _mm512_set1_epi16('\\'));
    uint64_t kept = 0xaaaaaaaaaaaaaaaau | _pdep_u64(marks, 0x5555555555555555u);
    _mm512_storeu_si512(q, _mm512_maskz_compress_epi8(kept, pairs));
    return q + n + __builtin_popcount(marks);
}
KD_WIDE static const uint8_t *kd_compress(const uint8_t *p, const uint8_t *stop, uint8_t **to) {
    uint8_t *q = *to;
    while (p < stop) {
        long n = stop - p < 64 ? stop - p : 64;
        uint64_t used = ~(uint64_t)0 >> (64 - n), marks;
        __m512i bytes = _mm512_maskz_loadu_epi8(used, p);
        if (_mm512_mask_cmpgt_epu8_mask(used, _mm512_sub_epi8(bytes, _mm512_set1_epi8(0x20)), _mm512_set1_epi8(0x5e)))
            break;
        marks = _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8('"')) |
                _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8('\\'));
        if (!marks) {
            _mm512_storeu_si512(q, bytes);
            q += n;
        } else if (n <= 32) {
            q = kd_compressed(q, _mm512_castsi512_si256(bytes), (uint32_t)marks, n);
        } else {
            q = kd_compressed(q, _mm512_castsi512_si256(bytes), (uint32_t)marks, 32);
            q = kd_compressed(q, _mm512_extracti64x4_epi64(bytes, 1), (uint32_t)(marks >> 32), n - 32);
        }
        p += n;
    }
    *to = q;
    return p;
}
#else
static inline int kd_begin_escapes(void) { return 0; }
static inline const uint8_t *kd_compress(const uint8_t *p, const uint8_t *stop, uint8_t **to) {
    (void)stop; (void)to;
    return p;
}
static inline const uint8_t *kd_shuffle(const uint8_t *p, const uint8_t *stop, const uint8_t *limit, uint8_t **to) {
    (void)stop; (void)limit; (void)to;
    return p;
}
#endif
#endif
