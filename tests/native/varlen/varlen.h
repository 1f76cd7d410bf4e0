// Packings of ternary codes whose length depends on the codes: bitmap_sign and
// huffman243. Their layouts are described in terngrad/codec/stages/bitmap.py and
// huffman.py, whose words these functions make and take to the bit.
//
// Nothing here allocates, throws, keeps state or needs TensorFlow; a function
// takes 100 kB of the stack and may run on any number of threads. Decoders trust nothing: for any
// words they read and write only what they are given, end, and return kOk only
// for the words that the encoder makes of the codes that they return.
#ifndef TERNGRAD_NATIVE_VARLEN_H_
#define TERNGRAD_NATIVE_VARLEN_H_

#include <cstddef>
#include <cstdint>

extern "C" {

enum TerngradVarlenStatus {
  kTerngradOk = 0,
  kTerngradTooMany = 1,    // more elements than 2**28
  kTerngradCapacity = 2,   // fewer words than the capacity
  kTerngradBadCode = 3,    // a code that is not -1, 0 or 1
  kTerngradLength = 4,     // as many words as the first says are not there
  kTerngradHeader = 5,     // a first word that no encoder writes
  kTerngradDigit = 6,      // a word that is no number of 20 trits
  kTerngradBlocks = 7,     // blocks of other lengths than their table says
  kTerngradTail = 8,       // something else than zeros where nothing is
  kTerngradNotShortest = 9  // codes that the encoder writes otherwise
};

// What a status means, in a few words; never null.
const char* terngrad_varlen_message(int status);

// Words that a payload of `count` codes has at most; 0 for too many codes.
size_t terngrad_bitmap_sign_capacity(size_t count);
size_t terngrad_huffman243_capacity(size_t count);

// Writes all of the `capacity` words, zeros after the `*used` that are used.
// On a failure nothing of what was written is of use.
int terngrad_bitmap_sign_encode(const int8_t* codes, size_t count,
                                uint32_t* words, size_t capacity,
                                size_t* used);
int terngrad_huffman243_encode(const int8_t* codes, size_t count,
                               uint32_t* words, size_t capacity, size_t* used);

// Takes `num_words` words, the used ones at least, and writes `count` codes;
// some of them, where it fails.
int terngrad_bitmap_sign_decode(const uint32_t* words, size_t num_words,
                                int8_t* codes, size_t count);
int terngrad_huffman243_decode(const uint32_t* words, size_t num_words,
                               int8_t* codes, size_t count);

// Bits of the code words of the 243 symbols in table `step`, 1 to 63, of
// huffman243; kTerngradHeader for another step.
int terngrad_huffman243_lengths(int step, uint8_t* lengths);

}  // extern "C"

#endif  // TERNGRAD_NATIVE_VARLEN_H_
