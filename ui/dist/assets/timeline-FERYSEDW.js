import{g as n}from"./chunk-RLH3V6A7.js";function e({run:i}){return n("p",{class:"quiet",children:i.id})}export{e as Timeline};
