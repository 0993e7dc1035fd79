# crc32 as zlib has it: folded by carry-less products where the processor has them, else sixteen bytes at a time.
# In: bytes. Out: what zlib.crc32 gives.

cdef extern from *:
    """
    #include <stdint.h>
    #if defined(__x86_64__) && defined(__GNUC__)
    #include <immintrin.h>

    static int crc32_can_fold(void) {
        return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    }

    #define FOLDS __attribute__((target("pclmul,sse4.1")))

    FOLDS static inline __m128i fold(__m128i x, __m128i by, __m128i next) {
        __m128i products = _mm_xor_si128(_mm_clmulepi64_si128(x, by, 0x00), _mm_clmulepi64_si128(x, by, 0x11));
        return _mm_xor_si128(products, next);
    }

    /* Gopal et al., "Fast CRC computation using PCLMULQDQ", reflected. `size`: at least 64, in steps of 16. */
    FOLDS static uint32_t crc32_fold(const uint8_t *data, Py_ssize_t size, uint32_t crc) {
        const __m128i by64 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
        const __m128i by16 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
        const __m128i by8 = _mm_set_epi64x(0, 0x0163cd6124);
        const __m128i poly = _mm_set_epi64x(0x01f7011641, 0x01db710641);
        const __m128i low = _mm_set_epi32(0, -1, 0, -1);
        const __m128i *at = (const __m128i *)data;
        __m128i a = _mm_xor_si128(_mm_loadu_si128(at), _mm_cvtsi32_si128((int)crc));
        __m128i b = _mm_loadu_si128(at + 1), c = _mm_loadu_si128(at + 2), d = _mm_loadu_si128(at + 3);
        for (at += 4, size -= 64; size >= 64; at += 4, size -= 64) {
            a = fold(a, by64, _mm_loadu_si128(at));
            b = fold(b, by64, _mm_loadu_si128(at + 1));
            c = fold(c, by64, _mm_loadu_si128(at + 2));
            d = fold(d, by64, _mm_loadu_si128(at + 3));
        }
        a = fold(a, by16, b);
        a = fold(a, by16, c);
        a = fold(a, by16, d);
        for (; size >= 16; at++, size -= 16)
            a = fold(a, by16, _mm_loadu_si128(at));
        a = _mm_xor_si128(_mm_srli_si128(a, 8), _mm_clmulepi64_si128(a, by16, 0x10));
        a = _mm_xor_si128(_mm_srli_si128(a, 4), _mm_clmulepi64_si128(_mm_and_si128(a, low), by8, 0x00));
        b = _mm_and_si128(_mm_clmulepi64_si128(_mm_and_si128(a, low), poly, 0x10), low);
        a = _mm_xor_si128(a, _mm_clmulepi64_si128(b, poly, 0x00));
        return (uint32_t)_mm_extract_epi32(a, 1);
    }
    #else
    static int crc32_can_fold(void) { return 0; }
    static uint32_t crc32_fold(const uint8_t *data, Py_ssize_t size, uint32_t crc) { return crc; }
    #endif
    """
    bint crc32_can_fold() nogil
    uint32_t crc32_fold(const uint8_t* data, Py_ssize_t size, uint32_t crc) nogil

cdef bint _can_fold = crc32_can_fold()

cdef uint32_t _crc[16][256]

cdef void _make_crc_tables() noexcept:
    cdef uint32_t n, k, value
    for n in range(256):
        value = n
        for k in range(8):
            value = (value >> 1) ^ (0xEDB88320u if value & 1 else 0u)
        _crc[0][n] = value
    for n in range(256):
        value = _crc[0][n]
        for k in range(1, 16):
            value = (value >> 8) ^ _crc[0][value & 0xFF]
            _crc[k][n] = value

_make_crc_tables()


cdef uint32_t crc32(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    cdef uint32_t crc = 0xFFFFFFFFu
    cdef uint32_t a, b, c, d
    cdef Py_ssize_t folded
    if _can_fold and size >= 64:
        folded = size & ~15
        crc = crc32_fold(data, folded, crc)
        data += folded
        size -= folded
    while size >= 16:
        a = crc ^ (data[0] | <uint32_t>data[1] << 8 | <uint32_t>data[2] << 16 | <uint32_t>data[3] << 24)
        b = data[4] | <uint32_t>data[5] << 8 | <uint32_t>data[6] << 16 | <uint32_t>data[7] << 24
        c = data[8] | <uint32_t>data[9] << 8 | <uint32_t>data[10] << 16 | <uint32_t>data[11] << 24
        d = data[12] | <uint32_t>data[13] << 8 | <uint32_t>data[14] << 16 | <uint32_t>data[15] << 24
        crc = (
            _crc[15][a & 0xFF] ^ _crc[14][(a >> 8) & 0xFF] ^ _crc[13][(a >> 16) & 0xFF] ^ _crc[12][a >> 24]
            ^ _crc[11][b & 0xFF] ^ _crc[10][(b >> 8) & 0xFF] ^ _crc[9][(b >> 16) & 0xFF] ^ _crc[8][b >> 24]
            ^ _crc[7][c & 0xFF] ^ _crc[6][(c >> 8) & 0xFF] ^ _crc[5][(c >> 16) & 0xFF] ^ _crc[4][c >> 24]
            ^ _crc[3][d & 0xFF] ^ _crc[2][(d >> 8) & 0xFF] ^ _crc[1][(d >> 16) & 0xFF] ^ _crc[0][d >> 24]
        )
        data += 16
        size -= 16
    while size > 0:
        crc = (crc >> 8) ^ _crc[0][(crc ^ data[0]) & 0xFF]
        data += 1
        size -= 1
    return crc ^ 0xFFFFFFFFu
