/* NH, the universal hash of UMAC (Black, Halevi, Krawczyk, Krovetz, Rogaway: UMAC: fast and secure message
 * authentication, 1999), on words of 64 bits as in VMAC (Krovetz, Dai: 2007).
 *
 * The sum of (a + k) * (b + k') over pairs of words, modulo 2^128: two texts that do not depend on the key have the
 * same sum once in 2^64 keys. A pair takes one multiplication, where SipHash takes 60 operations. The sum itself gives
 * the key away, so that it never leaves the kernel: SipHash goes over it. */
#ifndef KDUMP_NH_H
#define KDUMP_NH_H
#include <stdint.h>
#include <string.h>
#include "siphash.h"

#define KD_NH_LEAD 8     /* words of the key for what comes before a text */
#define KD_NH_BLOCK 64   /* bytes */
#define KD_NH_CHUNK 1024 /* bytes of a text that have a sum of their own */
#define KD_NH_KEY (KD_NH_LEAD + KD_NH_CHUNK / 8)

#ifdef __SIZEOF_INT128__
typedef unsigned __int128 KdNh;
static inline KdNh kd_nh_zero(void) { return 0; }
static inline uint64_t kd_nh_low(KdNh sum) { return (uint64_t)sum; }
static inline uint64_t kd_nh_high(KdNh sum) { return (uint64_t)(sum >> 64); }
static inline void kd_nh_pair(KdNh *sum, uint64_t a, uint64_t b, const uint64_t *key) {
    *sum += (KdNh)(a + key[0]) * (uint64_t)(b + key[1]);
}
#else
typedef struct { uint64_t low, high; } KdNh;
static inline KdNh kd_nh_zero(void) { KdNh zero = {0, 0}; return zero; }
static inline uint64_t kd_nh_low(KdNh sum) { return sum.low; }
static inline uint64_t kd_nh_high(KdNh sum) { return sum.high; }
static inline void kd_nh_pair(KdNh *sum, uint64_t a, uint64_t b, const uint64_t *key) {
    const uint64_t x = a + key[0], y = b + key[1];
    const uint64_t x0 = (uint32_t)x, x1 = x >> 32, y0 = (uint32_t)y, y1 = y >> 32;
    const uint64_t low = x0 * y0, one = x1 * y0 + (low >> 32), two = x0 * y1 + (uint32_t)one;
    const uint64_t product = two << 32 | (uint32_t)low;
    sum->low += product;
    sum->high += x1 * y1 + (one >> 32) + (two >> 32) + (sum->low < product);
}
#endif

static inline uint64_t kd_nh_word(const void *bytes, int number) {
    uint64_t word;
    memcpy(&word, (const uint8_t *)bytes + 8 * number, 8);
    return word;
}

/* Bytes that keep n bytes of a block begin KD_NH_BLOCK - n bytes from here. */
static const uint64_t kd_nh_kept[2 * KD_NH_BLOCK / 8] = {
    UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX,
};

/* Add a text of up to KD_NH_CHUNK bytes, with zeros up to whole blocks. `after`: where the readable bytes end. How many
 * bytes the last block has decides no branch: the CPU cannot foresee it. */
static inline void kd_nh_text(KdNh *sum, const uint8_t *text, int64_t size, const uint8_t *after, const uint64_t *key) {
    const uint8_t *kept;
    uint8_t rest[KD_NH_BLOCK];
    int i;
    for (; size >= KD_NH_BLOCK; size -= KD_NH_BLOCK, text += KD_NH_BLOCK, key += KD_NH_BLOCK / 8)
        for (i = 0; i < KD_NH_BLOCK / 8; i += 2)
            kd_nh_pair(sum, kd_nh_word(text, i), kd_nh_word(text, i + 1), key + i);
    if (!size)
        return;
    if (after - text < KD_NH_BLOCK) {
        memset(rest, 0, KD_NH_BLOCK);
        memcpy(rest, text, (size_t)size);
        text = rest;
    }
    kept = (const uint8_t *)kd_nh_kept + KD_NH_BLOCK - size;
    for (i = 0; i < KD_NH_BLOCK / 8; i += 2)
        kd_nh_pair(sum, kd_nh_word(text, i) & kd_nh_word(kept, i), kd_nh_word(text, i + 1) & kd_nh_word(kept, i + 1),
                   key + i);
}

/* Set a pair of words to the sum of a text, to which `lead` belongs. Of a longer text it is the hash of the sums of its
 * chunks. `begin` is that of the hash. */
static inline void kd_nh_set(KdNh lead, const uint8_t *text, int64_t size, const uint8_t *after,
                             const uint64_t *key, const KdSip *begin, int64_t *pair) {
    KdSip s;
    uint64_t sums = 0;
    if (size <= KD_NH_CHUNK) {
        kd_nh_text(&lead, text, size, after, key);
        pair[0] = (int64_t)kd_nh_low(lead), pair[1] = (int64_t)kd_nh_high(lead);
        return;
    }
    for (s = *begin; size > 0; size -= KD_NH_CHUNK, text += KD_NH_CHUNK) {
        kd_nh_text(&lead, text, size < KD_NH_CHUNK ? size : KD_NH_CHUNK, after, key);
        kd_sip_word(&s, kd_nh_low(lead));
        kd_sip_word(&s, kd_nh_high(lead));
        lead = kd_nh_zero();
        sums++;
    }
    kd_sip_end(&s, sums << 4 << 56, pair);
}
#endif
