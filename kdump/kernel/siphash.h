/* SipHash-2-4 with 128 bits of output, of many texts at once (Aumasson, Bernstein: SipHash: a fast short-input PRF).
 *
 * A round of SipHash waits for the one before, and a text of 100 bytes takes 40 of them. Where the CPU has registers of
 * 512 bits, eight texts go through the rounds together, each in one lane: an instruction fetches the next word of all.
 * Texts of about one length go together, and a lane whose text has ended keeps its state. Every machine has the version
 * that takes one text after the other. */
#ifndef KDUMP_SIPHASH_H
#define KDUMP_SIPHASH_H
#include <stdint.h>
#include <stddef.h>
#include <string.h>

#define KD_SIP_LEAD 3    /* the most words before a text */
#define KD_SIP_JOBS 256  /* the most texts that are hashed in one call */
#define KD_SIP_LENGTHS 64
#define KD_SIP_FEW 2     /* no more texts than these are faster one by one */

typedef struct { uint64_t v0, v1, v2, v3; } KdSip;

/* A text: `state` after `before` bytes, some words, and the bytes. The hash goes to out: the first half, the second. */
typedef struct {
    const KdSip *state;
    const uint8_t *text;
    int64_t *out;
    int64_t whole;  /* the words of the text that are whole */
    uint64_t words[KD_SIP_LEAD];
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

/* Set the text of a job, of which a whole number of words, `before` bytes, comes before it. */
static inline void kd_sip_set(KdSipJob *job, const KdSip *state, const uint8_t *text, int64_t size, int64_t before,
                              int64_t *out) {
    const uint8_t *p = text + (size & ~(int64_t)7);
    int left = (int)(size & 7), i;
    uint64_t word = 0;
    if (left && size > 8) {
        memcpy(&word, p + left - 8, 8);
        word >>= 8 * (8 - left);
    } else
        for (i = 0; i < left; i++)
            word |= (uint64_t)p[i] << (8 * i);
    job->state = state;
    job->text = text;
    job->out = out;
    job->whole = size >> 3;
    job->last = word | (uint64_t)((before + size) & 0xff) << 56;
}

static inline void kd_sip_one(const KdSipJob *job, int lead) {
    KdSip s = *job->state;
    const uint8_t *p = job->text, *end = p + 8 * job->whole;
    uint64_t word;
    int i;
    for (i = 0; i < lead; i++)
        kd_sip_word(&s, job->words[i]);
    for (; p < end; p += 8) {
        memcpy(&word, p, 8);
        kd_sip_word(&s, word);
    }
    kd_sip_word(&s, job->last);
    s.v2 ^= 0xee;
    for (i = 0; i < 4; i++)
        KD_SIP_ROUND(s.v0, s.v1, s.v2, s.v3);
    job->out[0] = (int64_t)(s.v0 ^ s.v1 ^ s.v2 ^ s.v3);
    s.v1 ^= 0xdd;
    for (i = 0; i < 4; i++)
        KD_SIP_ROUND(s.v0, s.v1, s.v2, s.v3);
    job->out[1] = (int64_t)(s.v0 ^ s.v1 ^ s.v2 ^ s.v3);
}

#if defined(__x86_64__) && ((defined(__clang__) && __clang_major__ >= 9) || \
                            (!defined(__clang__) && defined(__GNUC__) && __GNUC__ >= 9))
#define KD_SIP_WIDE 1
#define KD_SIP_TARGET __attribute__((target("avx512f")))
#include <immintrin.h>
typedef uint64_t KdLanes __attribute__((vector_size(64)));
#define KD_FETCHED(places, at) ((KdLanes)_mm512_i64gather_epi64((__m512i)(places), (const void *)(at), 1))

/* Hash eight texts with `lead` words each before them. */
KD_SIP_TARGET static void kd_sip_eight(const KdSipJob *const *jobs, int lead) {
    const KdLanes all = (KdLanes)_mm512_loadu_si512(jobs);
    const KdLanes states = KD_FETCHED(all, offsetof(KdSipJob, state));
    const KdLanes whole = KD_FETCHED(all, offsetof(KdSipJob, whole));
    const KdLanes last = KD_FETCHED(all, offsetof(KdSipJob, last));
    const KdLanes out = KD_FETCHED(all, offsetof(KdSipJob, out));
    KdLanes text = KD_FETCHED(all, offsetof(KdSipJob, text)), w, before0, before1, before2, before3;
    KdLanes v0 = KD_FETCHED(states, offsetof(KdSip, v0)), v1 = KD_FETCHED(states, offsetof(KdSip, v1));
    KdLanes v2 = KD_FETCHED(states, offsetof(KdSip, v2)), v3 = KD_FETCHED(states, offsetof(KdSip, v3));
    const int64_t least = _mm512_reduce_min_epi64((__m512i)whole), most = _mm512_reduce_max_epi64((__m512i)whole);
    __mmask8 on, more;
    int64_t at;
    int i;
    for (i = 0; i < lead; i++) {
        w = KD_FETCHED(all, offsetof(KdSipJob, words) + 8 * i);
        KD_SIP_WORD(v0, v1, v2, v3, w);
    }
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

static void kd_sip_wide(const KdSipJob *jobs, int64_t count, int lead) {
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
                kd_sip_eight(group, lead);
                waiting = 0;
            }
        }
    if (waiting > KD_SIP_FEW) {
        for (at = waiting; at < 8; at++)
            group[at] = group[0]; /* hashed again, to the same place */
        kd_sip_eight(group, lead);
    } else
        for (at = 0; at < waiting; at++)
            kd_sip_one(group[at], lead);
}
#endif

static void kd_sip_single(const KdSipJob *jobs, int64_t count, int lead) {
    int64_t i;
    for (i = 0; i < count; i++)
        kd_sip_one(jobs + i, lead);
}

/* Hashes up to KD_SIP_JOBS texts with `lead` words each before them. */
typedef void (*KdSipHash)(const KdSipJob *jobs, int64_t count, int lead);

/* The fastest way that this machine has. */
static KdSipHash kd_sip_fastest(void) {
#ifdef KD_SIP_WIDE
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f"))
        return kd_sip_wide;
#endif
    return kd_sip_single;
}
#endif
