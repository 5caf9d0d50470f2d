/* BLAKE3 of files, written from the paper and nothing else: the judge of digests in the end-to-end checks.
 *
 * For:        checking what longhaul prints against a program that shares no line and no language with it.
 * In, out:    b3 FILE... -> one line of 64 hexadecimal digits for each; `b3 --test` checks itself against published digests.
 * Invariants: reads each byte once, in memory of a few KiB.
 * Absent on purpose: keys, longer output, speed (a few hundred MB/s by any C compiler), anything of the library that longhaul uses.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { BLOCK = 64, CHUNK = 1024, CHUNK_START = 1, CHUNK_END = 2, PARENT = 4, ROOT = 8 };
static const uint32_t IV[8] = {0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19};
static const uint8_t PERMUTED[16] = {2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8};

static uint32_t turned(uint32_t word, int bits) { return word >> bits | word << (32 - bits); }

static void quarter(uint32_t *v, int a, int b, int c, int d, uint32_t x, uint32_t y) {
    v[a] += v[b] + x, v[d] = turned(v[d] ^ v[a], 16), v[c] += v[d], v[b] = turned(v[b] ^ v[c], 12);
    v[a] += v[b] + y, v[d] = turned(v[d] ^ v[a], 8), v[c] += v[d], v[b] = turned(v[b] ^ v[c], 7);
}

/* The compression function, cut to its first eight words: all that a tree of default length needs. */
static void compress(uint32_t out[8], const uint32_t cv[8], const uint8_t block[BLOCK], uint64_t counter, uint32_t length, uint32_t flags) {
    uint32_t m[16], next[16], v[16];
    for (int i = 0; i < 16; i++)
        m[i] = block[4 * i] | (uint32_t)block[4 * i + 1] << 8 | (uint32_t)block[4 * i + 2] << 16 | (uint32_t)block[4 * i + 3] << 24;
    memcpy(v, cv, 32), memcpy(v + 8, IV, 16);
    v[12] = (uint32_t)counter, v[13] = (uint32_t)(counter >> 32), v[14] = length, v[15] = flags;
    for (int round = 0; round < 7; round++) {
        for (int i = 0; i < 4; i++) quarter(v, i, 4 + i, 8 + i, 12 + i, m[2 * i], m[2 * i + 1]);
        for (int i = 0; i < 4; i++) quarter(v, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4, m[8 + 2 * i], m[9 + 2 * i]);
        for (int i = 0; i < 16; i++) next[i] = m[PERMUTED[i]];
        memcpy(m, next, sizeof m);
    }
    for (int i = 0; i < 8; i++) out[i] = v[i] ^ v[i + 8];
}

static void chunk(uint32_t out[8], const uint8_t *bytes, size_t count, uint64_t number, uint32_t root) {
    uint32_t flags = CHUNK_START;
    memcpy(out, IV, 32);
    do {
        uint8_t block[BLOCK] = {0};
        size_t take = count < BLOCK ? count : BLOCK;
        memcpy(block, bytes, take);
        bytes += take, count -= take;
        compress(out, out, block, number, (uint32_t)take, flags | (count ? 0 : CHUNK_END | root));
        flags = 0;
    } while (count);
}

static void parent(uint32_t out[8], const uint32_t left[8], const uint32_t right[8], uint32_t root) {
    uint8_t block[BLOCK];
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 4; j++) block[4 * i + j] = (uint8_t)((i < 8 ? left[i] : right[i - 8]) >> 8 * j);
    compress(out, IV, block, 0, BLOCK, PARENT | root);
}

/* Bytes of a file, or, without one, the made-up input of the published digests: 0, 1, ..., 250, 0, 1, ... */
static size_t more(FILE *file, uint64_t *left, uint64_t at, uint8_t *bytes) {
    if (file) return fread(bytes, 1, CHUNK, file);
    size_t count = *left < CHUNK ? *left : CHUNK;
    for (size_t i = 0; i < count; i++) bytes[i] = (uint8_t)((at + i) % 251);
    *left -= count;
    return count;
}

static void digest(char text[65], FILE *file, uint64_t length) {
    uint8_t bytes[2][CHUNK];
    uint32_t stack[64][8], node[8];
    uint64_t number = 0;
    int depth = 0, which = 0;
    size_t count = more(file, &length, 0, bytes[0]);
    for (;; number++) {
        size_t after = count < CHUNK ? 0 : more(file, &length, (number + 1) * CHUNK, bytes[!which]);
        if (!after) break;
        chunk(node, bytes[which], count, number, 0);
        /* As many whole subtrees end here as the number of chunks so far has zeros at its end. */
        for (uint64_t done = number + 1; !(done & 1); done >>= 1) parent(node, stack[--depth], node, 0);
        memcpy(stack[depth++], node, 32);
        which = !which, count = after;
    }
    chunk(node, bytes[which], count, number, number ? 0 : ROOT);
    while (depth--) parent(node, stack[depth], node, depth ? 0 : ROOT);
    for (int i = 0; i < 32; i++) sprintf(text + 2 * i, "%02x", node[i / 4] >> 8 * (i % 4) & 255);
}

static int tested(void) {
    static const struct { uint64_t length; const char *digest; } KNOWN[] = {
        {0, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"},
        {1, "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"},
        {1023, "10108970eeda3eb932baac1428c7a2163b0e924c9a9e25b35bba72b28f70bd11"},
        {1024, "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7"},
        {1025, "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444"},
        {2048, "e776b6028c7cd22a4d0ba182a8bf62205d2ef576467e838ed6f2529b85fba24a"},
        {3073, "7124b49501012f81cc7f11ca069ec9226cecb8a2c850cfe644e327d22d3e1cd3"},
        {7169, "a003fc7a51754a9b3c7fae0367ab3d782dccf28855a03d435f8cfe74605e7817"},
    };
    char text[65];
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++) {
        digest(text, NULL, KNOWN[i].length);
        if (strcmp(text, KNOWN[i].digest)) return fprintf(stderr, "%llu bytes: %s\n", (unsigned long long)KNOWN[i].length, text), 1;
    }
    return 0;
}

int main(int count, char **words) {
    char text[65];
    if (count == 2 && !strcmp(words[1], "--test")) return tested();
    for (int i = 1; i < count; i++) {
        FILE *file = fopen(words[i], "rb");
        if (!file) return perror(words[i]), 1;
        digest(text, file, 0);
        if (ferror(file)) return perror(words[i]), 1;
        fclose(file);
        puts(text);
    }
    return 0;
}
