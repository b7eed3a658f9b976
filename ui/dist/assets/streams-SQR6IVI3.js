import{g as n}from"./chunk-RLH3V6A7.js";function r({run:p}){return n("p",{class:"quiet",children:p.id})}export{r as Streams};
