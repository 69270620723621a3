/* CRC-32C (Castagnoli, reflected 0x82F63B78) and CRC-32 (IEEE, reflected 0xEDB88320) for the scan.
 *
 * CRC-32C runs three independent streams through the CPU's CRC instruction. The instruction has a latency of three
 * cycles and a throughput of one. A stream joins the next by a multiplication with x^(8*n) modulo the polynomial. This
 * is a linear operation, kept as four tables of 256 words for each of the three block lengths.
 *
 * Where the CPU multiplies polynomials in 512-bit registers (VPCLMULQDQ), a larger batch is folded first: a multiple of
 * each 256 bytes is added to the 256 bytes after them. Only the last 64 bytes go through the instruction. This is three
 * times as fast, so that reads bound a verify.
 *
 * Every machine has the table version (sixteen tables, sixteen bytes a step) for both polynomials.
 * Functions take and return the finished value (pre- and post-inverted), so calls chain. */
#ifndef KDUMP_CRC_H
#define KDUMP_CRC_H
#include <stdint.h>
#include <stddef.h>
#include <string.h>

#define KD_LONG 5344   /* bytes of one of three streams: a batch of 16 KiB, the usual size */
#define KD_MIDDLE 512 /* ... of the bytes that remain */
#define KD_SHORT 64   /* ... of the bytes that still remain, and of small batches */
/* The smallest number of bytes to fold: idle wide registers take 10 us to wake, too long for a tiny segment. */
#define KD_WIDE_FROM 4096

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define KD_HARDWARE 1
#define KD_HARDWARE_NAME "sse4.2"
#define KD_TARGET __attribute__((target("sse4.2")))
#include <nmmintrin.h>
#define KD_STEP64(crc, word) ((uint32_t)_mm_crc32_u64((crc), (word)))
#define KD_STEP8(crc, byte) _mm_crc32_u8((crc), (byte))
static int kd_hardware_here(void) { __builtin_cpu_init(); return __builtin_cpu_supports("sse4.2") != 0; }
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#define KD_HARDWARE 1
#define KD_HARDWARE_NAME "armv8"
#define KD_TARGET
#include <arm_acle.h>
#define KD_STEP64(crc, word) __crc32cd((crc), (word))
#define KD_STEP8(crc, byte) __crc32cb((crc), (byte))
static int kd_hardware_here(void) { return 1; }
#else
#define KD_HARDWARE 0
#define KD_HARDWARE_NAME "none"
static int kd_hardware_here(void) { return 0; }
#endif

#if defined(__x86_64__) && ((defined(__clang__) && __clang_major__ >= 9) || \
                            (!defined(__clang__) && defined(__GNUC__) && __GNUC__ >= 9))
#define KD_WIDE 1
#define KD_WIDE_TARGET __attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.2")))
#include <immintrin.h>
static int kd_wide_here(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq") &&
           __builtin_cpu_supports("sse4.2");
}
#else
#define KD_WIDE 0
static int kd_wide_here(void) { return 0; }
#endif

/* The multipliers that move the two halves of 16 bytes by 64 or 256 bytes. */
static uint64_t kd_fold_64[2], kd_fold_256[2];

static uint32_t kd_c_tables[16][256], kd_ieee_tables[16][256], kd_shift_long[4][256], kd_shift_middle[4][256],
    kd_shift_short[4][256];

static inline uint64_t kd_load64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return v; }

static inline uint32_t kd_load32le(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void kd_fill_tables(uint32_t tables[16][256], uint32_t polynomial) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = c & 1 ? polynomial ^ (c >> 1) : c >> 1;
        tables[0][i] = c;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int t = 1; t < 16; t++)
            tables[t][i] = tables[0][tables[t - 1][i] & 0xff] ^ (tables[t - 1][i] >> 8);
}

static inline uint32_t kd_table_update(uint32_t tables[16][256], uint32_t crc, const uint8_t *p, size_t n) {
    while (n >= 16) {
        uint32_t a = crc ^ kd_load32le(p), b = kd_load32le(p + 4), c = kd_load32le(p + 8), d = kd_load32le(p + 12);
        crc = tables[15][a & 0xff] ^ tables[14][a >> 8 & 0xff] ^ tables[13][a >> 16 & 0xff] ^ tables[12][a >> 24]
            ^ tables[11][b & 0xff] ^ tables[10][b >> 8 & 0xff] ^ tables[9][b >> 16 & 0xff] ^ tables[8][b >> 24]
            ^ tables[7][c & 0xff] ^ tables[6][c >> 8 & 0xff] ^ tables[5][c >> 16 & 0xff] ^ tables[4][c >> 24]
            ^ tables[3][d & 0xff] ^ tables[2][d >> 8 & 0xff] ^ tables[1][d >> 16 & 0xff] ^ tables[0][d >> 24];
        p += 16;
        n -= 16;
    }
    while (n--) crc = tables[0][(crc ^ *p++) & 0xff] ^ (crc >> 8);
    return crc;
}

/* A reflected polynomial, the highest bit is x^0, times x modulo that of CRC-32C. */
static inline uint32_t kd_times_x(uint32_t c) { return (c & 1 ? 0x82F63B78u : 0) ^ (c >> 1); }

static uint32_t kd_power(size_t n) {
    uint32_t c = 0x80000000u;
    while (n--) c = kd_times_x(c);
    return c;
}

/* The effect of `length` zero bytes on a CRC-32C register, as tables over its four bytes. */
static void kd_fill_shift(uint32_t shift[4][256], size_t length) {
    uint32_t basis[32];
    basis[31] = kd_power(8 * length);
    for (int bit = 30; bit >= 0; bit--) basis[bit] = kd_times_x(basis[bit + 1]);
    for (int byte = 0; byte < 4; byte++)
        for (uint32_t value = 0; value < 256; value++) {
            uint32_t c = 0;
            for (int bit = 0; bit < 8; bit++)
                if (value >> bit & 1) c ^= basis[8 * byte + bit];
            shift[byte][value] = c;
        }
}

static inline uint32_t kd_shift(uint32_t shift[4][256], uint32_t crc) {
    return shift[0][crc & 0xff] ^ shift[1][crc >> 8 & 0xff] ^ shift[2][crc >> 16 & 0xff] ^ shift[3][crc >> 24];
}

/* The product of two reflected words is one bit short. */
static void kd_fill_fold(uint64_t fold[2], size_t length) {
    fold[0] = (uint64_t)kd_power(8 * length + 32) << 1;
    fold[1] = (uint64_t)kd_power(8 * length - 32) << 1;
}

static void kd_crc_setup(void) {
    kd_fill_fold(kd_fold_64, 64);
    kd_fill_fold(kd_fold_256, 256);
    kd_fill_tables(kd_c_tables, 0x82F63B78u);
    kd_fill_tables(kd_ieee_tables, 0xEDB88320u);
    kd_fill_shift(kd_shift_long, KD_LONG);
    kd_fill_shift(kd_shift_middle, KD_MIDDLE);
    kd_fill_shift(kd_shift_short, KD_SHORT);
}

static uint32_t kd_crc32c_table(uint32_t crc, const uint8_t *p, size_t n) {
    return ~kd_table_update(kd_c_tables, ~crc, p, n);
}

static uint32_t kd_crc32_table(uint32_t crc, const uint8_t *p, size_t n) {
    return ~kd_table_update(kd_ieee_tables, ~crc, p, n);
}

#if KD_HARDWARE
#define KD_THREE_STREAMS(LENGTH, SHIFT) \
    while (n >= 3 * (LENGTH)) { \
        uint32_t b = 0, c = 0; \
        const uint8_t *stop = p + (LENGTH); \
        do { \
            crc = KD_STEP64(crc, kd_load64(p)); \
            b = KD_STEP64(b, kd_load64(p + (LENGTH))); \
            c = KD_STEP64(c, kd_load64(p + 2 * (LENGTH))); \
            p += 8; \
        } while (p < stop); \
        crc = kd_shift(SHIFT, crc) ^ b; \
        crc = kd_shift(SHIFT, crc) ^ c; \
        p += 2 * (LENGTH); \
        n -= 3 * (LENGTH); \
    }

KD_TARGET static uint32_t kd_crc32c_hardware(uint32_t crc, const uint8_t *p, size_t n) {
    crc = ~crc;
    KD_THREE_STREAMS(KD_LONG, kd_shift_long)
    KD_THREE_STREAMS(KD_MIDDLE, kd_shift_middle)
    KD_THREE_STREAMS(KD_SHORT, kd_shift_short)
    while (n >= 8) {
        crc = KD_STEP64(crc, kd_load64(p));
        p += 8;
        n -= 8;
    }
    while (n--) crc = KD_STEP8(crc, *p++);
    return ~crc;
}
#else
static uint32_t kd_crc32c_hardware(uint32_t crc, const uint8_t *p, size_t n) { return kd_crc32c_table(crc, p, n); }
#endif

#if KD_WIDE
#define KD_FOLD(register, by, data) \
    _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(register, by, 0x00), \
                              _mm512_clmulepi64_epi128(register, by, 0x11), data, 0x96)

KD_WIDE_TARGET static uint32_t kd_crc32c_wide(uint32_t crc, const uint8_t *p, size_t n) {
    if (n >= KD_WIDE_FROM) {
        __m512i far = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)kd_fold_256));
        __m512i near = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)kd_fold_64));
        __m512i a = _mm512_loadu_si512(p), b = _mm512_loadu_si512(p + 64);
        __m512i c = _mm512_loadu_si512(p + 128), d = _mm512_loadu_si512(p + 192);
        uint8_t rest[64];
        a = _mm512_xor_si512(a, _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~crc)));
        for (p += 256, n -= 256; n >= 256; p += 256, n -= 256) {
            a = KD_FOLD(a, far, _mm512_loadu_si512(p));
            b = KD_FOLD(b, far, _mm512_loadu_si512(p + 64));
            c = KD_FOLD(c, far, _mm512_loadu_si512(p + 128));
            d = KD_FOLD(d, far, _mm512_loadu_si512(p + 192));
        }
        b = KD_FOLD(a, near, b);
        c = KD_FOLD(b, near, c);
        d = KD_FOLD(c, near, d);
        _mm512_storeu_si512(rest, d);
        crc = kd_crc32c_hardware(~0u, rest, 64); /* the register starts at zero: `rest` includes its value */
    }
    return kd_crc32c_hardware(crc, p, n);
}
#else
static uint32_t kd_crc32c_wide(uint32_t crc, const uint8_t *p, size_t n) { return kd_crc32c_hardware(crc, p, n); }
#endif
#endif
