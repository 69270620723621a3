/* NH, the universal hash of UMAC (Black, Halevi, Krawczyk, Krovetz, Rogaway: UMAC: fast and secure message
 * authentication, 1999), on words of 32 bits.
 *
 * The sum of (a + k) * (b + k') over pairs of words, modulo 2^64: two texts that do not depend on the key have the same
 * sum once in 2^32 keys. A second sum has the key two words further on (Toeplitz), so that both are the same once in
 * 2^64 keys; once in 2^62 where one text has more blocks. A pair takes one multiplication, where SipHash takes 60
 * operations. The sums themselves give the key away, so that they never leave the kernel: SipHash goes over them. */
#ifndef KDUMP_NH_H
#define KDUMP_NH_H
#include <stdint.h>
#include <string.h>
#include "siphash.h"

#define KD_NH_LEAD 64    /* bytes before each text: numbers of its batch, then of its record */
#define KD_NH_BLOCK 64   /* bytes */
#define KD_NH_CHUNK 1024 /* bytes of a text that have sums of their own */
#define KD_NH_KEY (KD_NH_LEAD + KD_NH_CHUNK + 8) /* bytes */

typedef struct { uint64_t sums[2]; } KdNhSums;

/* What the texts of a batch have in common, and its sums, which are set with those of the first texts. */
typedef struct {
    uint64_t numbers[4];
    KdNhSums sums;
} KdNhBatch;

/* A text. `numbers` are those of the record; the last is the number of the bytes of the text. */
typedef struct {
    const KdNhBatch *batch;
    uint64_t numbers[4];
    const uint8_t *text;
} KdNhJob;

/* Bytes that keep n bytes of a block begin KD_NH_BLOCK - n bytes from here. */
static const uint64_t kd_nh_kept[2 * KD_NH_BLOCK / 8] = {
    UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX,
};

/* Return the last block of a text with zeros after it, in `rest` where no whole block is readable. */
static inline const uint8_t *kd_nh_rest(uint8_t *rest, const uint8_t *text, int64_t size, const uint8_t *after) {
    if (after - text >= KD_NH_BLOCK)
        return text;
    memset(rest, 0, KD_NH_BLOCK);
    memcpy(rest, text, (size_t)size);
    return rest;
}

static inline void kd_nh_word(KdNhSums *total, uint64_t word, const uint8_t *key) {
    uint32_t k[4];
    memcpy(k, key, 16);
    total->sums[0] += (uint64_t)((uint32_t)word + k[0]) * ((uint32_t)(word >> 32) + k[1]);
    total->sums[1] += (uint64_t)((uint32_t)word + k[2]) * ((uint32_t)(word >> 32) + k[3]);
}

static inline void kd_nh_block(KdNhSums *total, const uint8_t *words, const uint8_t *keep, const uint8_t *key) {
    uint64_t word, kept;
    int at;
    for (at = 0; at < KD_NH_BLOCK; at += 8) {
        memcpy(&word, words + at, 8);
        memcpy(&kept, keep + at, 8);
        kd_nh_word(total, word & kept, key + at);
    }
}

static inline void kd_nh_numbers(KdNhSums *total, const uint64_t *numbers, const uint8_t *key) {
    int i;
    for (i = 0; i < 4; i++)
        kd_nh_word(total, numbers[i], key + 8 * i);
}

static inline KdNhSums kd_nh_text(KdNhSums total, const uint8_t *text, int64_t size, const uint8_t *after,
                                  const uint8_t *key) {
    uint8_t rest[KD_NH_BLOCK];
    for (; size >= KD_NH_BLOCK; size -= KD_NH_BLOCK, text += KD_NH_BLOCK, key += KD_NH_BLOCK)
        kd_nh_block(&total, text, (const uint8_t *)kd_nh_kept, key);
    if (size)
        kd_nh_block(&total, kd_nh_rest(rest, text, size, after), (const uint8_t *)kd_nh_kept + KD_NH_BLOCK - size, key);
    return total;
}

/* Set a pair of words to the hash of the sums of all chunks of a long text. `begin` is that of the hash. */
typedef KdNhSums (*KdNhText)(KdNhSums total, const uint8_t *text, int64_t size, const uint8_t *after,
                             const uint8_t *key);
static void kd_nh_long(KdNhText text_sums, KdNhSums total, const KdNhJob *job, const uint8_t *after,
                       const uint8_t *key, const KdSip *begin, uint64_t *pair) {
    const uint8_t *text = job->text;
    int64_t size = (int64_t)job->numbers[3];
    uint64_t chunks = 0;
    KdSip s = *begin;
    for (; size > 0; size -= KD_NH_CHUNK, text += KD_NH_CHUNK, chunks++) {
        total = text_sums(total, text, size < KD_NH_CHUNK ? size : KD_NH_CHUNK, after, key);
        kd_sip_word(&s, total.sums[0]);
        kd_sip_word(&s, total.sums[1]);
        total.sums[0] = total.sums[1] = 0;
    }
    kd_sip_end(&s, chunks << 4 << 56, (int64_t *)pair);
}

/* Set the sums of batches, and a pair of words to the sums of each text. `after`: where the readable bytes end. */
static void kd_nh_single(KdNhBatch *batches, int64_t batch_count, const KdNhJob *jobs, int64_t count,
                         const uint8_t *after, const uint8_t *key, const KdSip *begin, uint64_t *pairs) {
    const KdNhSums zero = {{0, 0}};
    KdNhSums total;
    int64_t size;
    for (; batch_count > 0; batch_count--, batches++) {
        batches->sums = zero;
        kd_nh_numbers(&batches->sums, batches->numbers, key);
    }
    for (; count > 0; count--, jobs++, pairs += 2) {
        size = (int64_t)jobs->numbers[3];
        total = jobs->batch->sums;
        kd_nh_numbers(&total, jobs->numbers, key + KD_NH_LEAD / 2);
        if (size > KD_NH_CHUNK) {
            kd_nh_long(kd_nh_text, total, jobs, after, key + KD_NH_LEAD, begin, pairs);
            continue;
        }
        total = kd_nh_text(total, jobs->text, size, after, key + KD_NH_LEAD);
        memcpy(pairs, total.sums, 16);
    }
}

#ifdef KD_SIP_WIDE
typedef struct { __m256i first, second; } KdNhFour;

KD_SIP_TARGET2 static inline KdNhFour kd_nh_add4(KdNhFour sums, __m256i words, const uint8_t *key) {
    const __m256i one = _mm256_add_epi32(words, KD_LOADED4(key)), two = _mm256_add_epi32(words, KD_LOADED4(key + 8));
    sums.first = _mm256_add_epi64(sums.first, _mm256_mul_epu32(one, _mm256_srli_epi64(one, 32)));
    sums.second = _mm256_add_epi64(sums.second, _mm256_mul_epu32(two, _mm256_srli_epi64(two, 32)));
    return sums;
}

/* How many bytes the last block has decides no branch: the CPU cannot foresee it. */
KD_SIP_TARGET2 static inline KdNhFour kd_nh_text4(KdNhFour sums, const uint8_t *text, int64_t size,
                                                  const uint8_t *after, const uint8_t *key) {
    const uint8_t *kept;
    uint8_t rest[KD_NH_BLOCK];
    for (; size >= KD_NH_BLOCK; size -= KD_NH_BLOCK, text += KD_NH_BLOCK, key += KD_NH_BLOCK) {
        sums = kd_nh_add4(sums, KD_LOADED4(text), key);
        sums = kd_nh_add4(sums, KD_LOADED4(text + 32), key + 32);
    }
    if (!size)
        return sums;
    text = kd_nh_rest(rest, text, size, after);
    kept = (const uint8_t *)kd_nh_kept + KD_NH_BLOCK - size;
    sums = kd_nh_add4(sums, _mm256_and_si256(KD_LOADED4(text), KD_LOADED4(kept)), key);
    return kd_nh_add4(sums, _mm256_and_si256(KD_LOADED4(text + 32), KD_LOADED4(kept + 32)), key + 32);
}

KD_SIP_TARGET2 static inline __m128i kd_nh_total4(KdNhFour sums, __m128i total) {
    const __m256i both = _mm256_add_epi64(_mm256_unpacklo_epi64(sums.first, sums.second),
                                          _mm256_unpackhi_epi64(sums.first, sums.second));
    return _mm_add_epi64(total, _mm_add_epi64(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1)));
}

/* As kd_nh_text. */
KD_SIP_TARGET2 static KdNhSums kd_nh_chunk4(KdNhSums total, const uint8_t *text, int64_t size, const uint8_t *after,
                                            const uint8_t *key) {
    KdNhFour sums = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    sums = kd_nh_text4(sums, text, size, after, key);
    _mm_storeu_si128((__m128i *)total.sums, kd_nh_total4(sums, KD_LOADED2(total.sums)));
    return total;
}

/* As kd_nh_single. */
KD_SIP_TARGET2 static void kd_nh_half(KdNhBatch *batches, int64_t batch_count, const KdNhJob *jobs, int64_t count,
                                      const uint8_t *after, const uint8_t *key, const KdSip *begin, uint64_t *pairs) {
    const KdNhFour zero = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    KdNhFour sums;
    KdNhSums total;
    __m128i sum;
    int64_t size;
    for (; batch_count > 0; batch_count--, batches++) {
        sum = kd_nh_total4(kd_nh_add4(zero, KD_LOADED4(batches->numbers), key), _mm_setzero_si128());
        _mm_storeu_si128((__m128i *)batches->sums.sums, sum);
    }
    for (; count > 0; count--, jobs++, pairs += 2) {
        size = (int64_t)jobs->numbers[3];
        sums = kd_nh_add4(zero, KD_LOADED4(jobs->numbers), key + KD_NH_LEAD / 2);
        if (size <= KD_NH_CHUNK)
            sums = kd_nh_text4(sums, jobs->text, size, after, key + KD_NH_LEAD);
        sum = kd_nh_total4(sums, KD_LOADED2(jobs->batch->sums.sums));
        _mm_storeu_si128((__m128i *)pairs, sum);
        if (size > KD_NH_CHUNK) {
            memcpy(total.sums, pairs, 16);
            kd_nh_long(kd_nh_chunk4, total, jobs, after, key + KD_NH_LEAD, begin, pairs);
        }
    }
}
#endif

typedef void (*KdNhMany)(KdNhBatch *batches, int64_t batch_count, const KdNhJob *jobs, int64_t count,
                         const uint8_t *after, const uint8_t *key, const KdSip *begin, uint64_t *pairs);

/* The way with the number of that of SipHash. */
static KdNhMany kd_nh_way(int number) {
#ifdef KD_SIP_WIDE
    if (number)
        return kd_nh_half;
#endif
    (void)number;
    return kd_nh_single;
}
#endif
