/* SipHash-2-4 with 128 bits of output, of many texts at once (Aumasson, Bernstein: SipHash: a fast short-input PRF),
 * and SipHash-1-3 of many pairs of words.
 *
 * A round of SipHash waits for the one before, and a text of 100 bytes takes 40 of them. Where the CPU has registers of
 * 512 bits, eight texts go through the rounds together, each in one lane: an instruction fetches the next word of all.
 * With registers of 256 bits they are two groups of four, whose rounds do not wait for each other; two words of a text
 * are loaded at once. Texts of about one length go together, and a lane whose text has ended keeps its state.
 * Every machine has the version that takes one text after the other. */
#ifndef KDUMP_SIPHASH_H
#define KDUMP_SIPHASH_H
#include <stdint.h>
#include <stddef.h>
#include <string.h>

#define KD_SIP_JOBS 256  /* the most texts that are hashed in one call */
#define KD_SIP_LENGTHS 64
#define KD_SIP_FEW 2     /* no more texts than these are faster one by one */

typedef struct { uint64_t v0, v1, v2, v3; } KdSip;

/* A text, and where its hash goes: the first half, the second. */
typedef struct {
    const uint8_t *text;
    int64_t *out;
    int64_t whole;  /* the words of the text that are whole */
    uint64_t last;
} KdSipJob;

#define KD_ROTATED(x, n) ((x) << (n) | (x) >> (64 - (n)))
#define KD_SIP_ROUND(v0, v1, v2, v3) do {                                                        \
    v0 += v1; v1 = KD_ROTATED(v1, 13); v1 ^= v0; v0 = KD_ROTATED(v0, 32);                        \
    v2 += v3; v3 = KD_ROTATED(v3, 16); v3 ^= v2;                                                 \
    v0 += v3; v3 = KD_ROTATED(v3, 21); v3 ^= v0;                                                 \
    v2 += v1; v1 = KD_ROTATED(v1, 17); v1 ^= v2; v2 = KD_ROTATED(v2, 32);                        \
} while (0)
#define KD_SIP_WORD(v0, v1, v2, v3, word) do {                                                   \
    v3 ^= (word);                                                                                \
    KD_SIP_ROUND(v0, v1, v2, v3);                                                                \
    KD_SIP_ROUND(v0, v1, v2, v3);                                                                \
    v0 ^= (word);                                                                                \
} while (0)

static inline void kd_sip_begin(KdSip *s, uint64_t low, uint64_t high) {
    s->v0 = low ^ UINT64_C(0x736f6d6570736575);
    s->v1 = high ^ UINT64_C(0x646f72616e646f6d) ^ 0xee;
    s->v2 = low ^ UINT64_C(0x6c7967656e657261);
    s->v3 = high ^ UINT64_C(0x7465646279746573);
}

static inline void kd_sip_word(KdSip *s, uint64_t word) { KD_SIP_WORD(s->v0, s->v1, s->v2, s->v3, word); }

static inline void kd_sip_set(KdSipJob *job, const uint8_t *text, int64_t size, int64_t *out) {
    const uint8_t *p = text + (size & ~(int64_t)7);
    int left = (int)(size & 7), i;
    uint64_t word = 0;
    if (left && size > 8) {
        memcpy(&word, p + left - 8, 8);
        word >>= 8 * (8 - left);
    } else
        for (i = 0; i < left; i++)
            word |= (uint64_t)p[i] << (8 * i);
    job->text = text;
    job->out = out;
    job->whole = size >> 3;
    job->last = word | (uint64_t)(size & 0xff) << 56;
}

/* Set the hash, after the last word, with so many rounds for each half. */
static inline void kd_sip_finish(KdSip *s, int rounds, int64_t *out) {
    int i;
    s->v2 ^= 0xee;
    for (i = 0; i < rounds; i++)
        KD_SIP_ROUND(s->v0, s->v1, s->v2, s->v3);
    out[0] = (int64_t)(s->v0 ^ s->v1 ^ s->v2 ^ s->v3);
    s->v1 ^= 0xdd;
    for (i = 0; i < rounds; i++)
        KD_SIP_ROUND(s->v0, s->v1, s->v2, s->v3);
    out[1] = (int64_t)(s->v0 ^ s->v1 ^ s->v2 ^ s->v3);
}

/* Take the last word, and set the hash. */
static inline void kd_sip_end(KdSip *s, uint64_t last, int64_t *out) {
    kd_sip_word(s, last);
    kd_sip_finish(s, 4, out);
}

static inline void kd_sip_one(const KdSip *begin, const KdSipJob *job) {
    KdSip s = *begin;
    const uint8_t *p = job->text, *end = p + 8 * job->whole;
    uint64_t word;
    for (; p < end; p += 8) {
        memcpy(&word, p, 8);
        kd_sip_word(&s, word);
    }
    kd_sip_end(&s, job->last, job->out);
}

#define KD_SIP_PAIR_END (UINT64_C(16) << 56)

/* Pairs of words have SipHash-1-3: they are secret, where texts can be guessed. */
#define KD_SIP_WORD_OF_PAIR(s, word) do {                                                        \
    s.v3 ^= (word);                                                                              \
    KD_SIP_ROUND(s.v0, s.v1, s.v2, s.v3);                                                        \
    s.v0 ^= (word);                                                                              \
} while (0)

/* Set words that are `stride` words apart, and those after them, to the hashes of pairs of words. */
static void kd_sip_pairs_single(const KdSip *begin, const uint64_t *pairs, int64_t count, int64_t *out,
                                int64_t stride) {
    KdSip s;
    for (; count > 0; count--, pairs += 2, out += stride) {
        s = *begin;
        KD_SIP_WORD_OF_PAIR(s, pairs[0]);
        KD_SIP_WORD_OF_PAIR(s, pairs[1]);
        KD_SIP_WORD_OF_PAIR(s, KD_SIP_PAIR_END);
        kd_sip_finish(&s, 3, out);
    }
}

#if defined(__x86_64__) && ((defined(__clang__) && __clang_major__ >= 9) || \
                            (!defined(__clang__) && defined(__GNUC__) && __GNUC__ >= 9))
#define KD_SIP_WIDE 1
#define KD_SIP_TARGET __attribute__((target("avx512f")))
#include <immintrin.h>
typedef uint64_t KdLanes __attribute__((vector_size(64)));
#define KD_ALL8(x) ((KdLanes)_mm512_set1_epi64((int64_t)(x)))
#define KD_FETCHED(places, at) ((KdLanes)_mm512_i64gather_epi64((__m512i)(places), (const void *)(at), 1))

/* Hash eight texts. */
KD_SIP_TARGET static void kd_sip_eight(const KdSip *begin, const KdSipJob *const *jobs) {
    const KdLanes all = (KdLanes)_mm512_loadu_si512(jobs);
    const KdLanes whole = KD_FETCHED(all, offsetof(KdSipJob, whole));
    const KdLanes last = KD_FETCHED(all, offsetof(KdSipJob, last));
    const KdLanes out = KD_FETCHED(all, offsetof(KdSipJob, out));
    KdLanes text = KD_FETCHED(all, offsetof(KdSipJob, text)), w, before0, before1, before2, before3;
    KdLanes v0 = KD_ALL8(begin->v0), v1 = KD_ALL8(begin->v1), v2 = KD_ALL8(begin->v2), v3 = KD_ALL8(begin->v3);
    const int64_t least = _mm512_reduce_min_epi64((__m512i)whole), most = _mm512_reduce_max_epi64((__m512i)whole);
    __mmask8 on, more;
    int64_t at;
    int i;
    for (at = 0; at < least; at++, text += 8) {
        w = KD_FETCHED(text, 0);
        KD_SIP_WORD(v0, v1, v2, v3, w);
    }
    if (least == most)
        KD_SIP_WORD(v0, v1, v2, v3, last);
    else
        for (; at <= most; at++, text += 8) {
            on = _mm512_cmpge_epi64_mask((__m512i)whole, _mm512_set1_epi64(at));
            more = _mm512_cmpgt_epi64_mask((__m512i)whole, _mm512_set1_epi64(at));
            w = (KdLanes)_mm512_mask_i64gather_epi64((__m512i)last, more, (__m512i)text, NULL, 1);
            before0 = v0, before1 = v1, before2 = v2, before3 = v3;
            KD_SIP_WORD(v0, v1, v2, v3, w);
            v0 = (KdLanes)_mm512_mask_mov_epi64((__m512i)before0, on, (__m512i)v0);
            v1 = (KdLanes)_mm512_mask_mov_epi64((__m512i)before1, on, (__m512i)v1);
            v2 = (KdLanes)_mm512_mask_mov_epi64((__m512i)before2, on, (__m512i)v2);
            v3 = (KdLanes)_mm512_mask_mov_epi64((__m512i)before3, on, (__m512i)v3);
        }
    v2 ^= 0xee;
    for (i = 0; i < 4; i++)
        KD_SIP_ROUND(v0, v1, v2, v3);
    _mm512_i64scatter_epi64(NULL, (__m512i)out, (__m512i)(v0 ^ v1 ^ v2 ^ v3), 1);
    v1 ^= 0xdd;
    for (i = 0; i < 4; i++)
        KD_SIP_ROUND(v0, v1, v2, v3);
    _mm512_i64scatter_epi64(NULL, (__m512i)(out + 8), (__m512i)(v0 ^ v1 ^ v2 ^ v3), 1);
}

#define KD_SIP_TARGET2 __attribute__((target("avx2")))
typedef struct { __m256i v0, v1, v2, v3; } KdSipFour;

#define KD_ROTATED4(x, n) _mm256_or_si256(_mm256_slli_epi64(x, n), _mm256_srli_epi64(x, 64 - (n)))
#define KD_TURNED4(x) _mm256_shuffle_epi32(x, 0xb1)
#define KD_ROTATED4_16(x) _mm256_shuffle_epi8(x, by16)
/* A round of both groups: each line of the one has no need of that of the other. */
#define KD_SIP_ROUND4(a, b) do {                                                                          \
    a.v0 = _mm256_add_epi64(a.v0, a.v1);              b.v0 = _mm256_add_epi64(b.v0, b.v1);                \
    a.v2 = _mm256_add_epi64(a.v2, a.v3);              b.v2 = _mm256_add_epi64(b.v2, b.v3);                \
    a.v1 = KD_ROTATED4(a.v1, 13);                     b.v1 = KD_ROTATED4(b.v1, 13);                       \
    a.v3 = KD_ROTATED4_16(a.v3);                      b.v3 = KD_ROTATED4_16(b.v3);                        \
    a.v1 = _mm256_xor_si256(a.v1, a.v0);              b.v1 = _mm256_xor_si256(b.v1, b.v0);                \
    a.v3 = _mm256_xor_si256(a.v3, a.v2);              b.v3 = _mm256_xor_si256(b.v3, b.v2);                \
    a.v0 = KD_TURNED4(a.v0);                          b.v0 = KD_TURNED4(b.v0);                            \
    a.v2 = _mm256_add_epi64(a.v2, a.v1);              b.v2 = _mm256_add_epi64(b.v2, b.v1);                \
    a.v0 = _mm256_add_epi64(a.v0, a.v3);              b.v0 = _mm256_add_epi64(b.v0, b.v3);                \
    a.v1 = KD_ROTATED4(a.v1, 17);                     b.v1 = KD_ROTATED4(b.v1, 17);                       \
    a.v3 = KD_ROTATED4(a.v3, 21);                     b.v3 = KD_ROTATED4(b.v3, 21);                       \
    a.v1 = _mm256_xor_si256(a.v1, a.v2);              b.v1 = _mm256_xor_si256(b.v1, b.v2);                \
    a.v3 = _mm256_xor_si256(a.v3, a.v0);              b.v3 = _mm256_xor_si256(b.v3, b.v0);                \
    a.v2 = KD_TURNED4(a.v2);                          b.v2 = KD_TURNED4(b.v2);                            \
} while (0)
#define KD_SIP_WORD4(a, b, w, x) do {                                                                     \
    a.v3 = _mm256_xor_si256(a.v3, w);                 b.v3 = _mm256_xor_si256(b.v3, x);                   \
    KD_SIP_ROUND4(a, b);                                                                                  \
    KD_SIP_ROUND4(a, b);                                                                                  \
    a.v0 = _mm256_xor_si256(a.v0, w);                 b.v0 = _mm256_xor_si256(b.v0, x);                   \
} while (0)
#define KD_SIP_WORD_OF_PAIR4(a, b, w, x) do {                                                             \
    a.v3 = _mm256_xor_si256(a.v3, w);                 b.v3 = _mm256_xor_si256(b.v3, x);                   \
    KD_SIP_ROUND4(a, b);                                                                                  \
    a.v0 = _mm256_xor_si256(a.v0, w);                 b.v0 = _mm256_xor_si256(b.v0, x);                   \
} while (0)
#define KD_LOADED2(p) _mm_loadu_si128((const __m128i *)(p))
#define KD_LOADED4(p) _mm256_loadu_si256((const __m256i *)(p))
#define KD_STORED4(p, x) _mm256_storeu_si256((__m256i *)(p), x)
#define KD_OF_JOBS4(jobs, field) _mm256_set_epi64x(                                                       \
    (int64_t)(jobs)[3]->field, (int64_t)(jobs)[2]->field, (int64_t)(jobs)[1]->field, (int64_t)(jobs)[0]->field)
/* Two words from each of four places: the first ones, and the second ones. */
#define KD_PAIRS4(first, second, a, b, c, d) do {                                                         \
    __m256i even = _mm256_inserti128_si256(_mm256_castsi128_si256(KD_LOADED2(a)), KD_LOADED2(c), 1);      \
    __m256i odd = _mm256_inserti128_si256(_mm256_castsi128_si256(KD_LOADED2(b)), KD_LOADED2(d), 1);       \
    first = _mm256_unpacklo_epi64(even, odd);                                                             \
    second = _mm256_unpackhi_epi64(even, odd);                                                            \
} while (0)

KD_SIP_TARGET2 static inline __m256i kd_sip_words4(const KdSipJob *const *jobs, int64_t at) {
    uint64_t word[4];
    int i;
    for (i = 0; i < 4; i++)
        memcpy(&word[i], jobs[i]->text + 8 * at, 8);
    return _mm256_set_epi64x((int64_t)word[3], (int64_t)word[2], (int64_t)word[1], (int64_t)word[0]);
}

/* The word at `at` of four texts, or the last one of a text that has no whole word there. */
KD_SIP_TARGET2 static inline __m256i kd_sip_ends4(const KdSipJob *const *jobs, int64_t at) {
    uint64_t word[4];
    int i;
    for (i = 0; i < 4; i++) {
        word[i] = jobs[i]->last;
        if (at < jobs[i]->whole)
            memcpy(&word[i], jobs[i]->text + 8 * at, 8);
    }
    return _mm256_set_epi64x((int64_t)word[3], (int64_t)word[2], (int64_t)word[1], (int64_t)word[0]);
}

KD_SIP_TARGET2 static inline KdSipFour kd_sip_chosen4(KdSipFour before, KdSipFour after, __m256i on) {
    after.v0 = _mm256_blendv_epi8(before.v0, after.v0, on);
    after.v1 = _mm256_blendv_epi8(before.v1, after.v1, on);
    after.v2 = _mm256_blendv_epi8(before.v2, after.v2, on);
    after.v3 = _mm256_blendv_epi8(before.v3, after.v3, on);
    return after;
}

KD_SIP_TARGET2 static inline KdSipFour kd_sip_begin4(const KdSip *begin) {
    KdSipFour s;
    s.v0 = _mm256_set1_epi64x((int64_t)begin->v0), s.v1 = _mm256_set1_epi64x((int64_t)begin->v1);
    s.v2 = _mm256_set1_epi64x((int64_t)begin->v2), s.v3 = _mm256_set1_epi64x((int64_t)begin->v3);
    return s;
}

KD_SIP_TARGET2 static inline __m256i kd_sip_result4(const KdSipFour *s) {
    return _mm256_xor_si256(_mm256_xor_si256(s->v0, s->v1), _mm256_xor_si256(s->v2, s->v3));
}

#define KD_SIP_BY16 const __m256i by16 = _mm256_set_epi8(13, 12, 11, 10, 9, 8, 15, 14, 5, 4, 3, 2, 1, 0, 7, 6, \
                                                     13, 12, 11, 10, 9, 8, 15, 14, 5, 4, 3, 2, 1, 0, 7, 6)
/* The rounds after the last word; the first halves of the hashes, and the second ones. */
#define KD_SIP_END4(a, b, rounds, first_a, first_b, second_a, second_b) do {                              \
    const __m256i ee = _mm256_set1_epi64x(0xee), dd = _mm256_set1_epi64x(0xdd);                           \
    int round;                                                                                            \
    a.v2 = _mm256_xor_si256(a.v2, ee), b.v2 = _mm256_xor_si256(b.v2, ee);                                 \
    for (round = 0; round < (rounds); round++)                                                                   \
        KD_SIP_ROUND4(a, b);                                                                              \
    first_a = kd_sip_result4(&a), first_b = kd_sip_result4(&b);                                           \
    a.v1 = _mm256_xor_si256(a.v1, dd), b.v1 = _mm256_xor_si256(b.v1, dd);                                 \
    for (round = 0; round < (rounds); round++)                                                                   \
        KD_SIP_ROUND4(a, b);                                                                              \
    second_a = kd_sip_result4(&a), second_b = kd_sip_result4(&b);                                         \
} while (0)

KD_SIP_TARGET2 static inline void kd_sip_out4(int64_t *const *out, __m256i first, __m256i second) {
    const __m256i even = _mm256_unpacklo_epi64(first, second), odd = _mm256_unpackhi_epi64(first, second);
    _mm_storeu_si128((__m128i *)out[0], _mm256_castsi256_si128(even));
    _mm_storeu_si128((__m128i *)out[1], _mm256_castsi256_si128(odd));
    _mm_storeu_si128((__m128i *)out[2], _mm256_extracti128_si256(even, 1));
    _mm_storeu_si128((__m128i *)out[3], _mm256_extracti128_si256(odd, 1));
}

/* As kd_sip_pairs_single. */
KD_SIP_TARGET2 static void kd_sip_pairs_half(const KdSip *begin, const uint64_t *pairs, int64_t count, int64_t *out,
                                             int64_t stride) {
    KD_SIP_BY16;
    const __m256i end = _mm256_set1_epi64x((int64_t)KD_SIP_PAIR_END);
    const KdSipFour start = kd_sip_begin4(begin);
    KdSipFour a, b;
    __m256i w, x, y, z, first_a, first_b;
    int64_t *to[8];
    int i;
    for (; count >= 8; count -= 8, pairs += 16, out += 8 * stride) {
        for (i = 0; i < 8; i++)
            to[i] = out + i * stride;
        KD_PAIRS4(w, y, pairs, pairs + 2, pairs + 4, pairs + 6);
        KD_PAIRS4(x, z, pairs + 8, pairs + 10, pairs + 12, pairs + 14);
        a = start, b = start;
        KD_SIP_WORD_OF_PAIR4(a, b, w, x);
        KD_SIP_WORD_OF_PAIR4(a, b, y, z);
        KD_SIP_WORD_OF_PAIR4(a, b, end, end);
        KD_SIP_END4(a, b, 3, first_a, first_b, y, z);
        kd_sip_out4(to, first_a, y);
        kd_sip_out4(to + 4, first_b, z);
    }
    kd_sip_pairs_single(begin, pairs, count, out, stride);
}

/* As kd_sip_eight. */
KD_SIP_TARGET2 static void kd_sip_two_fours(const KdSip *begin, const KdSipJob *const *jobs) {
    const KdSipJob *const *more = jobs + 4;
    KD_SIP_BY16;
    KdSipFour a = kd_sip_begin4(begin), b = a, before_a, before_b;
    __m256i w, x, y, z, first_a, first_b, before;
    int64_t *out[8];
    int64_t at, least = jobs[0]->whole, most = least;
    int i;
    for (i = 1; i < 8; i++) {
        least = jobs[i]->whole < least ? jobs[i]->whole : least;
        most = jobs[i]->whole > most ? jobs[i]->whole : most;
    }
    for (at = 0; at + 2 <= least; at += 2) {
        KD_PAIRS4(w, y, jobs[0]->text + 8 * at, jobs[1]->text + 8 * at, jobs[2]->text + 8 * at,
                  jobs[3]->text + 8 * at);
        KD_PAIRS4(x, z, more[0]->text + 8 * at, more[1]->text + 8 * at, more[2]->text + 8 * at,
                  more[3]->text + 8 * at);
        KD_SIP_WORD4(a, b, w, x);
        KD_SIP_WORD4(a, b, y, z);
    }
    for (; at < least; at++) {
        w = kd_sip_words4(jobs, at), x = kd_sip_words4(more, at);
        KD_SIP_WORD4(a, b, w, x);
    }
    if (least == most) {
        w = KD_OF_JOBS4(jobs, last), x = KD_OF_JOBS4(more, last);
        KD_SIP_WORD4(a, b, w, x);
    } else for (; at <= most; at++) {
        w = kd_sip_ends4(jobs, at), x = kd_sip_ends4(more, at);
        before = _mm256_set1_epi64x(at - 1);
        before_a = a, before_b = b;
        KD_SIP_WORD4(a, b, w, x);
        a = kd_sip_chosen4(before_a, a, _mm256_cmpgt_epi64(KD_OF_JOBS4(jobs, whole), before));
        b = kd_sip_chosen4(before_b, b, _mm256_cmpgt_epi64(KD_OF_JOBS4(more, whole), before));
    }
    KD_SIP_END4(a, b, 4, first_a, first_b, y, z);
    for (i = 0; i < 8; i++)
        out[i] = jobs[i]->out;
    kd_sip_out4(out, first_a, y);
    kd_sip_out4(out + 4, first_b, z);
}

typedef void (*KdSipEight)(const KdSip *begin, const KdSipJob *const *jobs);

static inline void kd_sip_grouped(const KdSip *begin, const KdSipJob *jobs, int64_t count, KdSipEight eight) {
    int16_t first[KD_SIP_LENGTHS], next[KD_SIP_JOBS];
    const KdSipJob *group[8];
    int64_t i;
    int bucket, waiting = 0, at;
    memset(first, 0xff, sizeof(first));
    for (i = 0; i < count; i++) {
        bucket = (int)(jobs[i].whole < KD_SIP_LENGTHS ? jobs[i].whole : KD_SIP_LENGTHS - 1);
        next[i] = first[bucket];
        first[bucket] = (int16_t)i;
    }
    for (bucket = 0; bucket < KD_SIP_LENGTHS; bucket++)
        for (at = first[bucket]; at >= 0; at = next[at]) {
            group[waiting++] = jobs + at;
            if (waiting == 8) {
                eight(begin, group);
                waiting = 0;
            }
        }
    if (waiting > KD_SIP_FEW) {
        for (at = waiting; at < 8; at++)
            group[at] = group[0]; /* hashed again, to the same place */
        eight(begin, group);
    } else
        for (at = 0; at < waiting; at++)
            kd_sip_one(begin, group[at]);
}

static void kd_sip_wide(const KdSip *begin, const KdSipJob *jobs, int64_t count) {
    kd_sip_grouped(begin, jobs, count, kd_sip_eight);
}

static void kd_sip_half(const KdSip *begin, const KdSipJob *jobs, int64_t count) {
    kd_sip_grouped(begin, jobs, count, kd_sip_two_fours);
}
#endif

static void kd_sip_single(const KdSip *begin, const KdSipJob *jobs, int64_t count) {
    int64_t i;
    for (i = 0; i < count; i++)
        kd_sip_one(begin, jobs + i);
}

/* Hashes up to KD_SIP_JOBS texts. */
typedef void (*KdSipHash)(const KdSip *begin, const KdSipJob *jobs, int64_t count);

/* The ways that this machine has, the fastest last: what each is called, and how many there are. */
static const char *const kd_sip_names[] = {"single", "avx2", "avx512"};
static int kd_sip_ways(void) {
#ifdef KD_SIP_WIDE
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2"))
        return __builtin_cpu_supports("avx512f") ? 3 : 2;
#endif
    return 1;
}

static KdSipHash kd_sip_way(int number) {
#ifdef KD_SIP_WIDE
    if (number)
        return number == 1 ? kd_sip_half : kd_sip_wide;
#endif
    (void)number;
    return kd_sip_single;
}

typedef void (*KdSipPairs)(const KdSip *begin, const uint64_t *pairs, int64_t count, int64_t *out, int64_t stride);

static KdSipPairs kd_sip_pairs_way(int number) {
#ifdef KD_SIP_WIDE
    if (number)
        return kd_sip_pairs_half;
#endif
    (void)number;
    return kd_sip_pairs_single;
}
#endif
