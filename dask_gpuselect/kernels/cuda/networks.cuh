// Networks that sort the keys of a thread in registers, or other items that can be exchanged.

// Comparisons keep the integer units busy, while the multiplying units idle. So in two of three
// exchanges, the smaller key is computed by these, as the sum minus the larger key: 12 % less time for
// lanes of 24. `one` is 1, which the compiler must not know.
__device__ __forceinline__ void exchange(Key& a, Key& b, bool multiplies, Key one) {
    Key most = max(a, b), least = min(a, b);
#if BITS < 64
    if (multiplies) {
        asm("{\n"
            "    .reg .u32 sum;\n"
            "    mad.lo.u32 sum, %1, %4, %2;\n"
            "    mad.lo.u32 %0, %3, %5, sum;\n"
            "}"
            : "=r"(least)
            : "r"(a), "r"(b), "r"(most), "r"(one), "r"(-one));
    }
#endif
    a = least, b = most;
}

struct Plain {};  // in place of `one`: comparisons alone

__device__ __forceinline__ void exchange(Key& a, Key& b, bool, Plain) {
    Key most = max(a, b), least = min(a, b);
    a = least, b = most;
}

// Batcher's odd-even merge sort (Knuth, volume 3, 5.3.4): 191 exchanges for 32 keys. It uses templates,
// because a loop whose step doubles is not unrolled, and keys in registers need constant places.

// Exchange keys that are K apart, and then half as far, in blocks of 2 * P places whose halves are
// sorted. The keys have places from BEFORE on.
template <int P, int K, int BEFORE, class Item, int N, class One>
__device__ __forceinline__ void merge_in_thread(Item (&keys)[N], One one) {
#pragma unroll
    for (int j = K % P; j + K < N + BEFORE; j += 2 * K) {
#pragma unroll
        for (int i = 0; i < K; ++i) {
            int a = i + j - BEFORE, b = a + K;
            bool is_pair = a >= 0 && b < N && (i + j) / (2 * P) == (i + j + K) / (2 * P);
            if (is_pair) exchange(keys[a], keys[b], a % 3 != 0, one);
        }
    }
    if constexpr (K > 1) merge_in_thread<P, K / 2, BEFORE>(keys, one);
}

template <int P, class Item, int N, class One>
__device__ __forceinline__ void sort_in_thread(Item (&keys)[N], One one) {
    merge_in_thread<P, P, 0>(keys, one);
    if constexpr (2 * P < N) sort_in_thread<2 * P>(keys, one);
}
