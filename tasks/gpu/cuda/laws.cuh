// Semirings. LAW is 0 (min-plus), 1 (sum-product), 2 (log-sum) or 3 (residues); T is the value type.
//
// A Product is the type in which inputs are multiplied, an Acc what a thread sums in. `bound` is the saturating
// infinity of integer costs, or the prime of residues. scaled() multiplies a sum by a value.

#define MIN_PLUS 0
#define SUM_PRODUCT 1
#define LOG_SUM 2
#define RESIDUES 3

typedef long long i64;
typedef unsigned long long u64;

template <typename A, typename B> struct Same { static constexpr bool value = false; };
template <typename A> struct Same<A, A> { static constexpr bool value = true; };

constexpr bool is_short = Same<T, short>::value;
constexpr bool is_float = Same<T, float>::value || Same<T, double>::value;
constexpr int SIZE = sizeof(T);

// Costs of 16 bits are added in 32: no sum of a step's inputs overflows there.
template <bool narrow> struct Wide { typedef T type; };
template <> struct Wide<true> { typedef int type; };
typedef Wide<is_short>::type Product;

// A comparison and a selection: min() of doubles costs more, for the sake of NaNs that costs never are.
template <typename V> __device__ __forceinline__ V least(V a, V b) { return min(a, b); }
template <> __device__ __forceinline__ double least(double a, double b) { return a < b ? a : b; }

__device__ __forceinline__ double infinity() { return __longlong_as_double(0x7ff0000000000000LL); }

#if LAW == MIN_PLUS

typedef Product Acc;
__device__ __forceinline__ Product one() { return 0; }
__device__ __forceinline__ T zero(i64 bound) { return is_float ? (T)infinity() : (T)bound; }
__device__ __forceinline__ Acc start(i64 bound) { return zero(bound); }
__device__ __forceinline__ Product times(Product a, Product b, i64 bound) {
#ifdef CLAMP
    return least((Product)(a + b), (Product)zero(bound));
#else
    return a + b;
#endif
}
__device__ __forceinline__ Acc plus(Acc a, Product b) { return least(a, b); }
__device__ __forceinline__ Acc merge(Acc a, Acc b) { return least(a, b); }
__device__ __forceinline__ Acc scaled(Acc a, Product b, i64 bound) { return times(a, b, bound); }
__device__ __forceinline__ T finish(Acc a, i64 bound) { return (T)a; }

#elif LAW == SUM_PRODUCT

typedef T Acc;
__device__ __forceinline__ Product one() { return 1; }
__device__ __forceinline__ T zero(i64) { return 0; }
__device__ __forceinline__ Acc start(i64) { return 0; }
__device__ __forceinline__ Product times(Product a, Product b, i64) { return a * b; }
__device__ __forceinline__ Acc plus(Acc a, Product b) { return a + b; }
__device__ __forceinline__ Acc merge(Acc a, Acc b) { return a + b; }
__device__ __forceinline__ Acc scaled(Acc a, Product b, i64) { return a * b; }
__device__ __forceinline__ T finish(Acc a, i64) { return a; }

#elif LAW == LOG_SUM

// A running maximum and the sum of exponentials below it.
struct Acc {
    T top, sum;
};
__device__ __forceinline__ Product one() { return 0; }
__device__ __forceinline__ T zero(i64) { return (T)-infinity(); }
__device__ __forceinline__ Acc start(i64 bound) { return {zero(bound), 0}; }
__device__ __forceinline__ Product times(Product a, Product b, i64) { return a + b; }
__device__ __forceinline__ Acc merge(Acc a, Acc b) {
    if (a.top < b.top) {
        Acc c = a;
        a = b;
        b = c;
    }
    if (b.sum != 0) a.sum += b.sum * exp(b.top - a.top);
    return a;
}
__device__ __forceinline__ Acc scaled(Acc a, Product b, i64 bound) {
    return b == zero(0) ? start(bound) : Acc{a.top + b, a.sum};
}
__device__ __forceinline__ Acc plus(Acc a, Product b) {
    if (b == zero(0)) return a;
    if (b <= a.top) {
        a.sum += exp(b - a.top);
    } else {
        a.sum = a.sum * exp(a.top - b) + 1;
        a.top = b;
    }
    return a;
}
__device__ __forceinline__ T finish(Acc a, i64 bound) { return a.sum == 0 ? zero(bound) : a.top + log(a.sum); }

#else

// Residues below 2^31: sums of 2^33 of them fit 64 bits and are reduced once.
typedef u64 Acc;
__device__ __forceinline__ Product one() { return 1; }
__device__ __forceinline__ T zero(i64) { return 0; }
__device__ __forceinline__ Acc start(i64) { return 0; }
__device__ __forceinline__ Product times(Product a, Product b, i64 bound) {
    return (i64)((u64)a * (u64)b % (u64)bound);
}
__device__ __forceinline__ Acc plus(Acc a, Product b) { return a + (u64)b; }
__device__ __forceinline__ Acc merge(Acc a, Acc b) { return a + b; }
__device__ __forceinline__ Acc scaled(Acc a, Product b, i64 bound) {
    return (u64)times((Product)(a % (u64)bound), b, bound);
}
__device__ __forceinline__ T finish(Acc a, i64 bound) { return (i64)(a % (u64)bound); }

#endif
